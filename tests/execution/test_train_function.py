"""Training as a pure function: what the commands compute, under jit, vmap and vmaps of vmaps."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jmarl
from benchmarks import matrix
from jmarl.errors import ConfigError
from tests.learning.test_vmapped import draws

pytestmark = pytest.mark.usefixtures("unwatched")
UPDATES, SEEDS, RATES = 3, (3, 4), (1e-3, 5e-3)
# worlds end within the third rollout
CHOSEN = matrix.TINY | {
    "algorithm": "ippo",
    "rollout_length": 10,
    "total_updates": UPDATES,
    "log_every": 1,
    "eval_episodes": 4,
    "quiet": True,
}


@dataclass(frozen=True)
class Doubled(jmarl.Ppo):
    """Tells its loss once more, doubled."""

    def loss(self, hyper, params, value_norm, batch, stats):
        loss, metrics = super().loss(hyper, params, value_norm, batch, stats)
        return loss, metrics | {"losses/doubled": 2 * loss}


def doubled(ppo):
    return Doubled(**vars(ppo))


@pytest.fixture(scope="module")
def train(unwatched):
    return jmarl.make_train(CHOSEN, learner=doubled)


@pytest.fixture(scope="module")
def grid(train):
    """Every seed with every rate."""
    keys = jnp.stack([jax.random.key(seed) for seed in SEEDS])
    over_rates = jax.vmap(train, in_axes=(None, 0))
    return jax.jit(jax.vmap(over_rates, in_axes=(0, None)))(keys, {"lr": jnp.array(RATES)})


@pytest.fixture(scope="module")
def commanded():
    """The run of the second seed with the second rate, as the command trains it."""
    ppo = CHOSEN["ppo"] | {"lr": RATES[1]}
    return jmarl.train(CHOSEN, seed=SEEDS[1], ppo=ppo)


def assert_same_run(result, outcome):
    pairs = [(result.state, outcome.state)]
    for ours, theirs in zip(*map(jax.tree.leaves, pairs[0]), strict=True):
        if jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
            ours, theirs = map(jax.random.key_data, (ours, theirs))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    for name in outcome.metrics.keys() & result.metrics.keys():
        shown = outcome.metrics[name]
        np.testing.assert_allclose(result.metrics[name], shown, rtol=2e-3, atol=1e-3, err_msg=name)


@pytest.mark.long
def test_every_member_of_a_grid_is_the_run_of_the_command(grid, commanded):
    assert grid.metrics["losses/policy_loss"].shape == (len(SEEDS), len(RATES), UPDATES)
    assert len(grid.metrics.keys() & commanded.metrics.keys()) > 8
    assert_same_run(jax.tree.map(lambda x: x[1, 1], grid), commanded)


def test_a_run_without_vmap_is_the_run_of_the_command(train, commanded):
    hyper = train.hyper._replace(lr=RATES[1])
    assert_same_run(jax.jit(train)(jax.random.key(SEEDS[1]), hyper), commanded)


def test_members_differ_in_seed_and_rate(grid):
    rates = grid.metrics["charts/learning_rate"][:, :, 0]
    np.testing.assert_allclose(rates, np.broadcast_to(RATES, rates.shape), rtol=1e-6)
    losses = np.asarray(grid.metrics["losses/policy_loss"][:, :, -1])
    assert np.unique(losses).size == losses.size


def test_an_own_loss_is_trained_by(grid):
    ours, theirs = grid.metrics["losses/doubled"], grid.metrics["losses/total_loss"]
    np.testing.assert_allclose(ours, 2 * theirs, rtol=1e-5)


@pytest.mark.parametrize("num_envs", [4, 16])  # side by side, and one after the other
def test_worlds_reset_in_one_branch_for_all_members(num_envs):
    """No step of a rollout draws anything but where a reset is taken."""
    train = jmarl.make_train(CHOSEN, num_envs=num_envs)
    keys = jax.random.split(jax.random.key(0), 4)
    found = list(draws(jax.make_jaxpr(jax.vmap(train))(keys).jaxpr))
    # within batches of members and updates; a rollout is a scan of its own
    playing = [around for around in found if around.count("scan") > 2]
    assert playing
    assert all("cond" in around for around in playing)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seeds": 2}, "seeds=2.*jax.vmap"),
        ({"stop_at_return": -3.0}, "stop_at_return=-3.*end of its budget"),
        ({"run_dir": "x"}, "run_dir=x .*writes nothing"),
    ],
)
def test_what_a_pure_function_cannot_do_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        jmarl.make_train(CHOSEN, **options)


def test_an_unknown_hyperparameter_is_refused_by_name(train):
    with pytest.raises(ConfigError, match=r"'learning_rate'.*Valid: .*lr"):
        train(jax.random.key(0), {"learning_rate": 1e-3})
