"""The examples of docs/examples do what the pages say of them; tests/test_example_scripts.py runs
those that are scripts."""

from pathlib import Path

import jax
import numpy as np
import pytest

import jmarl
from jmarl.algorithms.build import make_trainer
from jmarl.commands.train import parse
from jmarl.errors import ConfigError
from jmarl.learning.vmapped import VmappedTrainer
from jmarl.replays.gif import gif
from jmarl.replays.legend import Role, ScenarioLegend, legend_of
from jmarl.replays.page import page
from jmarl.replays.replay import record

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
TINY = "--num-envs 4 --rollout-length 5 --ppo.num-minibatches 1 --ppo.epochs 1 --total-updates 1 "
TINY += "--eval-episodes 2 --quiet --devices 1"

pytestmark = pytest.mark.usefixtures("registry")


def parsed(name, *arguments):
    return parse(["--plugin", str(EXAMPLES / name), *TINY.split(), *arguments])


def test_the_pages_show_every_example_as_it_is():
    shown = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    for path in EXAMPLES.glob("*.py"):
        assert f"```python\n{path.read_text(encoding='utf-8')}```" in shown, path.name


def test_a_scenario_is_trained_and_drawn_in_its_own_colours():
    config = parsed(
        *("rendezvous.py", "--env", "mpe/rendezvous", "--algorithm", "ippo", "--net.hidden", "4"),
        *("--env-options", "price", "0.5", "episode_length", "6"),
    )
    policy = jmarl.train(config).policy
    env = jmarl.make("mpe/rendezvous", price=0.5, episode_length=6)
    assert policy.spec == env.spec
    assert jmarl.check_env(env) == []
    replay = record(policy, jax.random.key(1), 1, attention=False)
    assert gif(replay, [0], 8).startswith(b"GIF")
    drawn = page(replay, "x", "y")
    for text in ("#7b3294", "#e08214", "#92c5de", "Couriers learn to meet the guide"):
        assert text in drawn


class Plain:
    """A scenario as `legend_of` sees it."""

    name = "plain"
    entities = jmarl.make("mpe/simple_spread").scenario.entities


def test_a_legend_that_leaves_something_out_is_refused():
    assert legend_of(Plain()).roles[0].agents == (0, 1, 2)  # none given: one for any world
    for legend, words in (
        (ScenarioLegend("aim", (Role("a", "#000000", "b", (0, 1)),), ()), "no role for agent 2"),
        (
            ScenarioLegend("aim", (Role("a", "#000000", "b", (0, 1, 2)),), ()),
            "no thing of the kind",
        ),
        ("red", "is a str, not a ScenarioLegend"),
    ):
        own = type("Own", (Plain,), {"legend": legend})
        with pytest.raises(ConfigError, match=words):
            legend_of(own())


def test_an_attention_critic_sees_all_agents():
    config = parsed(
        "attention_critic.py", "--algorithm", "attention_mappo", "--attention.width", "8"
    )
    trainer, hyper = make_trainer(config)
    state = jax.jit(trainer.init)(jax.random.key(0))
    policy, params = trainer.players[0].policy, state.policies[0].params
    after, _ = jax.jit(trainer.step_alike)(state, hyper)
    learned = after.policies[0].params["critic"]
    for old, new in zip(*map(jax.tree.leaves, (params["critic"], learned)), strict=True):
        assert (np.asarray(old) != np.asarray(new)).any()
    seen = state.timestep.obs
    moved = seen.at[:, 2].multiply(-1.0)  # agent 2's own observation changes everybody's value
    values = [
        policy.critic(params["critic"], (), state.timestep._replace(obs=obs))[1]
        for obs in (seen, moved)
    ]
    assert values[0].shape == (4, 3)
    assert (np.abs(values[1] - values[0]) > 1e-6).all()
    with pytest.raises(ConfigError, match=r"net\.critic_input is an option of"):
        parsed(
            *("attention_critic.py", "--algorithm", "attention_mappo"),
            *("--net.critic-input", "own"),
        )


def test_an_auxiliary_loss_is_weighted_by_its_own_traced_option(unwatched):
    """Two members of one program: with weight 0 nothing is learned from predictions."""
    config = parsed("next_observation.py", "--algorithm", "predicting_mappo", "--ppo.lr", "0.01")
    trainer, hyper = make_trainer(config)
    members = jax.tree.map(lambda x: np.full(2, x, np.float32), hyper)
    members = members._replace(weight=np.array([0.0, 1.0], np.float32))
    vmapped = VmappedTrainer(trainer)
    key = jax.random.wrap_key_data(np.repeat(jax.random.key_data(jax.random.key(0))[None], 2, 0))
    before = jax.jit(vmapped.init)(key)
    after, metrics = jax.jit(vmapped.step_alike)(before, members)
    old, new = (s.policies[0].params["actor"]["predictor"]["kernel"] for s in (before, after))
    change = np.abs(np.asarray(new - old)).max((1, 2))
    assert change[0] == 0
    assert change[1] > 0
    played = metrics["losses/prediction"]
    assert np.asarray(played)[0] == pytest.approx(
        np.asarray(played)[1]
    )  # one epoch, before learning
    assert metrics["losses/total_loss"][1] - metrics["losses/total_loss"][0] == pytest.approx(
        float(played[0]), rel=1e-4
    )


def shapes(*arguments):
    return make_trainer(parsed("own_body.py", *arguments))[0].shapes


def test_a_body_stands_in_for_the_hidden_layers():
    config = parsed("own_body.py", "--algorithm", "mappo", "--net.body", "own_body:Fourier")
    trainer, hyper = make_trainer(config)
    params = trainer.shapes.policies[0].params
    assert set(params["actor"]) == {"input_norm", "body", "out"}
    assert params["actor"]["out"]["kernel"].shape == (128, 5)
    jax.eval_shape(trainer.step_alike, trainer.shapes, hyper)
    for algorithm, body, words in (
        ("mappo", "own_body:Nothing", "own_body has no Nothing"),
        ("mappo", "no_such_module:Body", "there is no module 'no_such_module'"),
        ("mappo", "own_body:jnp", "is not a class of Flax modules"),
        ("mappo", "own_body", "is not of the form module:attribute"),
        ("rmappo", "own_body:Fourier", r"returns 128 features, .* choose net\.hidden=128"),
    ):
        with pytest.raises(ConfigError, match=words):
            shapes("--algorithm", algorithm, "--net.body", body)
