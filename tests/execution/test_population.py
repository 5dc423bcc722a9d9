"""A crew: who trains beside whom does not matter, and what moves is what should."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import matrix
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.execution.members import Members
from jmarl.execution.population import Crew

SEEDS = (7, 3, 5)
LR = np.array([1e-3, 5e-3, 2e-2])


pytestmark = pytest.mark.usefixtures("unwatched")


@pytest.fixture(scope="module")
def crews(unwatched):
    """The same three members, trained one after the other and two at a time (the second batch is
    filled up)."""
    trainer, hyper = make_trainer(build(matrix.TINY | {"algorithm": "ippo", "total_updates": 9}))
    trainer = replace(trainer, normalise_obs=True, normalise_reward=True)
    made = {}
    for per_batch in (1, 2):
        members = Members.alike(SEEDS, hyper)
        members = members._replace(hyper=members.hyper.replace(lr=LR))
        crew = Crew(trainer, members, episodes=4, per_batch=per_batch)
        crew.compile()
        crew.begin()
        metrics = crew.read(crew.advance(3))
        made[per_batch] = (crew, metrics, crew.states())
    return made


def same(one, other, atol=2e-5):
    for ours, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if not jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(ours, theirs, atol=atol)


def test_members_learn_the_same_in_batches_of_any_size(crews):
    (_, alone, states), (_, paired, others) = crews[1], crews[2]
    same(states.params, others.params)
    assert alone.keys() == paired.keys()
    for name, values in alone.items():
        assert values.shape == (3, 3)  # updates, members
        np.testing.assert_allclose(values, paired[name], rtol=1e-3, atol=1e-4)


def test_members_differ(crews):
    _, metrics, states = crews[2]
    np.testing.assert_allclose(metrics["charts/learning_rate"][0], LR, rtol=1e-6)
    leaf = np.asarray(jax.tree.leaves(states.params)[0]).reshape(3, -1)
    assert np.abs(np.diff(leaf, axis=0)).max(1).min() > 1e-3


def test_scores_do_not_depend_on_the_batch(crews):
    seen = {size: crew.play(crew.parameters(), greedy=True) for size, (crew, *_) in crews.items()}
    assert seen[1].agent_return.shape[:2] == (3, 4)
    np.testing.assert_allclose(seen[1].agent_return, seen[2].agent_return, rtol=1e-3)
    others = crews[2][0].play(crews[2][0].parameters(), greedy=True, fold=1)
    assert np.abs(others.agent_return - seen[2].agent_return).min() > 0
    third = crews[2][0].play(crews[2][0].parameters(), greedy=True, fold=2)
    assert np.abs(third.agent_return - others.agent_return).min() > 0


@pytest.mark.parametrize("per_batch", [1, 2])
def test_the_best_are_kept_member_by_member(crews, per_batch):
    crew, _, states = crews[per_batch]
    crew.best = None
    crew.keep_best(np.array([1.0, 5.0, np.nan]), 3, crew.parameters())
    doubled = jax.tree.map(lambda x: 2 * x, crew.parameters())
    crew.keep_best(np.array([2.0, 5.0, -9.0]), 6, doubled)  # of equals the first
    assert crew.best.score.tolist() == [2.0, 5.0, -9.0]
    assert crew.best.update.tolist() == [6, 3, 6]
    for member, factor in ((0, 2), (1, 1), (2, 2)):
        mine = jax.tree.map(lambda x, m=member, f=factor: f * x[m], states.params)
        same(crew.best.of(member).params, mine, atol=0)


@pytest.mark.parametrize("per_batch", [1, 2])
def test_survivors_take_the_places_of_the_others(crews, per_batch):
    crew, _, states = crews[per_batch]
    crew.take_up(states, np.arange(3), None)
    crew.keep([2, 0])
    assert crew.alive.tolist() == [0, 2]
    assert len(crew.batches) == (2 if per_batch == 1 else 1)
    after = crew.states()
    for place, member in enumerate((0, 2)):
        same(crew.population.take(after, place), crew.population.take(states, member), atol=0)
    metrics = crew.read(crew.advance(1))
    np.testing.assert_allclose(
        metrics["charts/learning_rate"][0], LR[[0, 2]] * (1 - 3 / 9), rtol=1e-5
    )


@pytest.mark.parametrize("per_batch", [1, 2])
def test_who_is_left_goes_on_and_is_played_with_its_own_best(crews, per_batch):
    crew, _, states = crews[per_batch]
    crew.take_up(states, np.arange(3), None)
    crew.keep_best(np.arange(3.0), 3, crew.parameters())
    crew.keep([1, 2])
    best = [crew._grown(given).params for given in crew.best_parameters()]
    joined = jax.tree.map(lambda *x: jnp.concatenate(x), *best)
    same(joined, jax.tree.map(lambda x: x[1:], states.params), atol=0)
    crew.keep([1])  # the first of two places
    assert crew.alive.tolist() == [1]
    same(crew.states().params, jax.tree.map(lambda x: x[1:2], states.params), atol=0)


@pytest.mark.parametrize("per_batch", [1, 2])
def test_a_copy_learns_on_in_its_own_worlds(crews, per_batch):
    crew, _, states = crews[per_batch]
    crew.take_up(states, np.arange(3), None)
    crew.copy(np.array([0, 0, 2]))
    after = crew.states()
    for name in ("params", "opt_state", "value_norm"):
        was, now = getattr(states, name), getattr(after, name)
        same(now, jax.tree.map(lambda x: x[jnp.array([0, 0, 2])], was), atol=0)
    same(after.timestep, states.timestep, atol=0)
    before, norms = states.normalisers, after.normalisers
    copied = (norms.obs, norms.reward.moments)
    originals = jax.tree.map(lambda x: x[jnp.array([0, 0, 2])], (before.obs, before.reward.moments))
    same(copied, originals, atol=0)
    assert np.abs(before.reward.running[1] - before.reward.running[0]).max() > 0.1
    same(norms.reward.running, before.reward.running, atol=0)  # it is about a member's own worlds
    assert (jax.random.key_data(after.key) == jax.random.key_data(states.key)).all()


def test_a_batch_that_needs_too_much_memory_is_compiled_smaller(crews):
    crew = crews[2][0]
    needed = crew.programs.step_bytes
    assert needed > 0
    members = Members(SEEDS[:2], jax.tree.map(lambda x: x[:2], crew.hyper))
    tight = Crew(crew.trainer, members, episodes=4, per_batch=2, limit=int(0.6 * needed))
    tight.compile()
    assert tight.per_batch == 1
    assert tight.programs.step_bytes <= 0.6 * needed
