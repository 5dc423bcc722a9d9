"""The composed train step: invariants on small shapes."""

import dataclasses
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import matrix
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.envs.base import Team
from jmarl.envs.mpe import SCENARIOS
from jmarl.learning.episodes import play_episodes
from jmarl.learning.rollout import shared_reward
from tests.support.tiny_runs import configured, go, told

SIZES = {"num_envs": 8, "total_updates": 10}
TINY = matrix.TINY | SIZES


def tiny(algorithm):
    return matrix.tiny(algorithm) | SIZES


@pytest.fixture(scope="module")
def spread():
    """A trainer, its start and its compiled step."""
    trainer, hyper = make_trainer(build(tiny("mat")))
    state = jax.jit(trainer.init)(jax.random.key(0))
    return trainer, hyper, state, jax.jit(trainer.step_alike)


def fresh(state):
    """The same state once more: its key may be used again on purpose."""
    return state.replace(key=jax.random.clone(state.key))


def after_episodes(metrics):
    """Without the returns of episodes that ended, of which there are none in short rollouts."""
    return {k: v for k, v in metrics.items() if not k.startswith("train/episode_return")}


def equal(a, b):
    same = jax.tree.map(
        lambda x, y: (
            bool((jax.random.key_data(x) == jax.random.key_data(y)).all())
            if jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
            else bool((x == y).all())
        ),
        a,
        b,
    )
    return all(jax.tree.leaves(same))


def test_ratio_is_one_on_the_first_minibatch(spread):
    _, hyper, state, step = spread
    _, metrics = step(fresh(state), hyper)
    np.testing.assert_allclose(metrics["losses/ratio"], 1.0, atol=1e-5)
    np.testing.assert_allclose(metrics["losses/approx_kl"], 0.0, atol=1e-6)
    assert metrics["losses/clipfrac"] == 0
    assert all(np.isfinite(value) for value in after_episodes(metrics).values())


def test_a_step_is_a_pure_function_of_its_state(spread):
    _, hyper, state, step = spread
    one, two = step(fresh(state), hyper), step(fresh(state), hyper)
    assert equal(one[0], two[0])
    assert one[0].update == 1
    assert not equal(one[0].policies, state.policies)


def test_hyperparameters_are_traced(spread):
    """Another learning rate moves parameters otherwise, without another compilation."""
    _, hyper, state, step = spread
    slow, _ = step(fresh(state), hyper._replace(lr=0.0))
    assert equal(slow.policies, state.policies)
    fast, _ = step(fresh(state), hyper._replace(lr=1e-2))
    assert not equal(fast.policies, state.policies)
    assert step._cache_size() == 1


def test_learning_rate_decays_to_the_end(spread):
    _, hyper, state, step = spread
    _, metrics = step(fresh(state).replace(update=jnp.asarray(7, jnp.int32)), hyper)
    np.testing.assert_allclose(metrics["charts/learning_rate"], 0.3 * hyper.lr, rtol=1e-5)


def test_more_updates_are_counted_than_an_int32_holds(spread):
    """9·2³⁰ + 2³⁰ - 1, then one more: about 10¹⁰."""
    trainer, hyper, state, _ = spread
    many = {"update": jnp.asarray(2**30 - 1, jnp.int32), "rounds": jnp.asarray(9, jnp.int32)}
    step = jax.jit(dataclasses.replace(trainer, total_updates=20 * 2**30).step_alike)
    after, metrics = step(fresh(state).replace(**many), hyper)
    assert (int(after.rounds), int(after.update)) == (10, 0)
    np.testing.assert_allclose(metrics["charts/learning_rate"], 0.5 * hyper.lr, rtol=1e-5)


def test_whole_episodes_are_scored(spread):
    trainer, _, state, _ = spread
    seen = jax.jit(
        lambda params: play_episodes(trainer.env, trainer.players, params, jax.random.key(1), 50)
    )(state.policies)
    assert seen.agent_return.shape == (50, 3)
    assert (seen.length == 25).all()
    assert seen.won is None
    assert (
        -200 < seen.agent_return.sum(1).mean() < -30
    )  # a fresh policy is about as good as standing still


EVERYTHING = list(itertools.product(sorted(SCENARIOS), matrix.ALGORITHMS, matrix.ACTIONS))


@pytest.mark.long
@pytest.mark.parametrize(("scenario", "algorithm", "actions"), EVERYTHING[::7])
def test_scenarios_algorithms_and_action_types_compose(scenario, algorithm, actions):
    """Shapes only: nothing is compiled. `python -m benchmarks.matrix` runs them all for real."""
    config = build(tiny(algorithm) | {"env": f"mpe/{scenario}", "actions": actions})
    trainer, hyper = make_trainer(config)
    state = jax.eval_shape(trainer.init, jax.random.key(0))
    after, metrics = jax.eval_shape(trainer.step_alike, state, hyper)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
        lambda x: (x.shape, x.dtype), state
    )
    assert len(state.policies) == len(trainer.players) == len(trainer.env.spec.teams)
    assert all(value.shape == () for value in metrics.values())


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(("algorithm", "distribution"), [("mat", "beta"), ("mappo", "tanh")])
def test_actions_between_bounds_train(algorithm, distribution, precision):
    """Unlike agents, padded. The ratio is 1 before anything is learned."""
    small = tiny(algorithm)
    net = small["net"] | {"distribution": distribution, "precision": precision}
    world = {"env": "mpe/simple_speaker_listener", "actions": "continuous"}
    trainer, hyper = make_trainer(build(small | world | {"net": net}))
    state = jax.jit(trainer.init)(jax.random.key(0))
    after, metrics = jax.jit(trainer.step_alike)(state, hyper)
    assert metrics["losses/approx_kl"] < (1e-9 if precision == "float32" else 1e-5)
    assert all(np.isfinite(value) for value in after_episodes(metrics).values())
    assert not equal(after.policies[0], state.policies[0])


@pytest.mark.long
def test_unlike_agents_in_two_teams_train():
    """Factored actions, hidden agents, padded observations."""
    few = {"num_good": 1, "num_adversaries": 2, "num_obstacles": 0, "num_forests": 1}
    chosen = {"algorithm": "mappo", "env": "mpe/simple_world_comm", "env_options": few}
    config = build(TINY | chosen)
    trainer, hyper = make_trainer(config)
    state = jax.jit(trainer.init)(jax.random.key(0))
    after, metrics = jax.jit(trainer.step_alike)(state, hyper)
    for team in ("adversary", "good"):
        np.testing.assert_allclose(metrics[f"losses/ratio/{team}"], 1.0, atol=1e-5)
    assert all(np.isfinite(value) for value in after_episodes(metrics).values())
    assert not equal(after.policies[0], state.policies[0])
    assert not equal(after.policies[1], state.policies[1])


def test_opponents_with_one_network_have_rewards_of_their_own():
    """Three predators and their prey; the second one is out of play."""
    trainer, _ = make_trainer(build({"env": "mpe/simple_tag", "net": {"share": "all"}}))
    (player,) = trainer.players
    active = jnp.array([1.0, 0.0, 1.0, 1.0])[None, None]
    played = SimpleNamespace(
        reward=jnp.array([[[4.0, 9.0, 6.0, -7.0]]]), active=active, valued=None
    )
    totals = trainer._reward_totals(player, played)
    means = {name: total / count for name, (count, total) in totals.items()}
    assert means == {"train/reward/adversary": 5.0, "train/reward/good": -7.0}


def test_rewards_are_shared_as_asked():
    reward = jnp.array([[1.0, 7.0, 3.0]])
    teams = (Team("a", (0, 2)), Team("b", (1,)))
    np.testing.assert_array_equal(shared_reward(reward, teams, "individual"), [[1, 7, 3]])
    np.testing.assert_array_equal(shared_reward(reward, teams, "team_mean"), [[2, 7, 2]])
    np.testing.assert_array_equal(shared_reward(reward, teams, "team_sum"), [[4, 7, 4]])


@pytest.mark.parametrize(("start_state", "alike"), [("stored", True), ("zero", False)])
def test_sequences_in_pieces_begin_with_what_was_remembered(start_state, alike):
    """Episodes of 4 steps end within pieces of 5: the ratio is 1 if memory is what it was."""
    chosen = {
        "algorithm": "rippo",
        "rollout_length": 10,
        "env_options": {"episode_length": 4},
        "net": {"hidden": [8], "start_state": start_state, "actor_gain": 1.0},
        "ppo": {"epochs": 1, "num_minibatches": 1, "chunk_length": 5},
    }
    trainer, hyper = make_trainer(build(TINY | chosen))
    state = jax.jit(trainer.init)(jax.random.key(0))
    _, metrics = jax.jit(trainer.step_alike)(state, hyper)
    apart = float(metrics["losses/approx_kl"])
    assert (apart < 1e-9) == alike


@pytest.mark.long
def test_monte_carlo_and_gae_read_a_time_limit_alike():
    """Episodes of 3 steps are cut within rollouts of 5. With λ = 1 both count the same returns."""
    learned = []
    for returns in ("gae", "monte_carlo"):
        chosen = {
            "algorithm": "ippo",
            "rollout_length": 5,
            "env_options": {"episode_length": 3},
            "ppo": {"returns": returns, "time_limit": "zero_gae", "gae_lambda": 1.0, "epochs": 1},
        }
        trainer, hyper = make_trainer(build(TINY | chosen))
        state = jax.jit(trainer.init)(jax.random.key(0))
        learned.append(jax.jit(trainer.step_alike)(state, hyper)[1]["losses/value_loss"])
    np.testing.assert_allclose(*learned, rtol=1e-4)


def test_what_worlds_report_are_metrics(tmp_path):
    """A single agent that covers one landmark earns -d/2, so rewards tell the distances."""
    options = {"N": 1, "benchmark_data": True, "max_cycles": 5}
    go(configured(tmp_path / "run", env="mpe/simple_spread", env_options=options, total_updates=2))
    lines = told(tmp_path / "run", "metrics.jsonl")
    assert lines
    for line in lines:
        np.testing.assert_allclose(
            line["train/info/distance"], -2 * line["train/reward"], rtol=1e-5
        )
        assert line["train/info/collisions"] == 0
    for line in told(tmp_path / "run", "evals.jsonl"):
        prefix = "absolute" if line.get("absolute") else "eval"
        expected = -2 * line[f"{prefix}/return_mean"] / 5
        np.testing.assert_allclose(line[f"{prefix}/info/distance"], expected, rtol=1e-5)


def test_reports_stop_at_an_early_end():
    """Of each episode's distances only those of its own steps count: rewards of one agent tell."""
    options = {"N": 1, "benchmark_data": True, "terminate_on_success": True}
    config = build(TINY | {"algorithm": "ippo", "env": "mpe/simple_spread", "env_options": options})
    trainer, _ = make_trainer(config)
    policies = jax.jit(trainer.init)(jax.random.key(0)).policies
    seen = jax.jit(lambda p, k: play_episodes(trainer.env, trainer.players, p, k, 200))(
        policies, jax.random.key(1)
    )
    assert len(np.unique(seen.length)) > 1
    np.testing.assert_allclose(seen.info["distance"], -2 * seen.agent_return[:, 0], rtol=1e-4)
