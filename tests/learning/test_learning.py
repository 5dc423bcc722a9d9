"""Learning on probe worlds: each isolates one thing that can break, and takes seconds."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.algorithms.build import make_players, make_trainer
from jmarl.algorithms.ppo import make_learner
from jmarl.config.algorithms import TRANSFORMERS
from jmarl.config.train_config import build, read_preset
from jmarl.envs.base import EnvSpec, Team
from jmarl.envs.batched import Batched, StepResult, padded_view
from jmarl.envs.spaces import Discrete
from jmarl.learning.acting import observe
from jmarl.learning.episodes import play_episodes

GAMMA = 0.95
CONFIGS = Path(__file__).parents[2] / "configs"


def trained(env, updates=60, algorithm="ippo", precision="float32", **ppo):
    """IPPO compiles fastest; returns, losses and optimisers are the same for all."""
    sizes = {"n_embd": 16} if algorithm in TRANSFORMERS else {"hidden": [16]}
    values = {
        "env": env,
        "algorithm": algorithm,
        "num_envs": 64,
        "rollout_length": 4,
        "total_updates": updates,
        "net": sizes | {"precision": precision},
        "ppo": {"lr": 3e-3, "gamma": GAMMA, "epochs": 4, "num_minibatches": 1, **ppo},
    }
    trainer, hyper = make_trainer(build(values))
    return trainer, after(trainer, hyper, updates)


def after(trainer, hyper, updates):
    state = jax.jit(trainer.init)(jax.random.key(0))
    train = jax.jit(
        lambda s: jax.lax.scan(lambda s, _: trainer.step_alike(s, hyper), s, length=updates)[0]
    )
    return train(state)


def score(trainer, state):
    """Mean return of greedy episodes, per agent."""
    seen = jax.jit(
        lambda p: play_episodes(trainer.env, trainer.players, p, jax.random.key(1), 200)
    )(state.policies)
    return float(seen.agent_return.mean())


def values_of(trainer, state, timestep):
    """[E, N] in the rewards' own units."""
    (player,), (learner,), (known,) = trainer.players, trainer.learners, state.policies
    seen = observe(trainer.env.spec, player, known, timestep)
    value = jax.jit(player.policy.value)(known.params, None, player.policy.memory(1), seen)
    if learner.objective.value_norm == "none":
        return np.asarray(value)
    return np.asarray(state.learners[0].value_norm.denormalise(value))


class Unequal:
    """Two agents each see a bit of their own, and are paid for playing it: 1 and 1,000. The latter
    is paid half of the time only, so that its advantages stay large."""

    spec = EnvSpec(
        name="test/unequal",
        agents=("poor", "rich"),
        teams=(Team("agents", (0, 1)),),
        obs_sizes=(2, 2),
        action_spaces=(Discrete(2),) * 2,
        state_size=4,
        episode_length=1,
        dialect="test",
    )

    def reset(self, key):
        bits = jax.random.bernoulli(key, shape=(2,)).astype(jnp.int32)
        return bits, padded_view(self.spec, list(jax.nn.one_hot(bits, 2)))

    def step(self, key, bits, action):
        lucky = jnp.stack([jnp.array(True), jax.random.bernoulli(key)])
        reward = ((action == bits) & lucky) * jnp.array([1.0, 1000.0])
        view = padded_view(self.spec, list(jax.nn.one_hot(bits, 2)))
        return bits, StepResult(view, reward, jnp.array(True), jnp.array(False))


@pytest.mark.long
def test_agents_apart_learn_whatever_others_are_paid():
    """With one advantage norm for both, the first would learn from the entropy bonus alone."""
    net = {"hidden": [16], "share": "none"}
    ppo = {"lr": 3e-3, "epochs": 4, "num_minibatches": 1, "reward": "individual"}
    chosen = {"algorithm": "mappo", "env": "probe/coordination", "net": net, "ppo": ppo}
    config = build(chosen | {"num_envs": 64, "rollout_length": 4, "total_updates": 40})
    trainer, hyper = make_trainer(config)
    env = Batched(Unequal())
    players = make_players(config, env.spec)
    learners = tuple(make_learner(config, env.spec, player) for player in players)
    trainer = dataclasses.replace(trainer, env=env, players=players, learners=learners)
    state = after(trainer, hyper, 40)
    key, sampled = jax.random.key(1), False  # the likeliest action is right much earlier
    seen = jax.jit(lambda p: play_episodes(env, trainer.players, p, key, 200, sampled))(
        state.policies
    )
    assert np.asarray(seen.agent_return[:, 0]).mean() > 0.95


@pytest.mark.parametrize("value_norm", ["valuenorm", "popart"])
def test_the_value_of_what_is_seen_is_learned(value_norm):
    """`probe/observation`: the reward is told by the observation, whatever is done."""
    trainer, state = trained("probe/observation", value_norm=value_norm)
    _, timestep = jax.jit(trainer.env.reset, static_argnums=1)(jax.random.key(3), 32)
    bit = timestep.obs[..., 1] > 0
    assert 0 < bit.mean() < 1
    np.testing.assert_allclose(
        values_of(trainer, state, timestep), jnp.where(bit, 1.0, -1.0), atol=0.1
    )


@pytest.mark.parametrize("returns", ["gae", "monte_carlo"])
def test_a_reward_to_come_is_discounted(returns):
    """`probe/delayed`: γ before the first step, 1 before the second."""
    trainer, state = trained("probe/delayed", returns=returns, value_norm="none")
    env_state, first = jax.jit(trainer.env.reset, static_argnums=1)(jax.random.key(3), 4)
    action = jnp.zeros((4, 1), jnp.int32)
    _, second = jax.jit(trainer.env.step)(jax.random.key(4), env_state, action)
    np.testing.assert_allclose(values_of(trainer, state, first), GAMMA, atol=0.03)
    np.testing.assert_allclose(values_of(trainer, state, second), 1.0, atol=0.03)


@pytest.mark.long
@pytest.mark.parametrize("returns", ["gae", "monte_carlo"])
@pytest.mark.parametrize("agent_end", ["own", "team", "world"])
def test_the_future_of_who_is_out(returns, agent_end):
    """`probe/death`: agent 1 is paid 1 and is out; its team is paid 1 twice more. By the rule of
    references it gets the value of what it sees then, which nobody learns: here agent 0's."""
    trainer, state = trained("probe/death", returns=returns, agent_end=agent_end, updates=100)
    _, first = jax.jit(trainer.env.reset, static_argnums=1)(jax.random.key(3), 4)
    value = values_of(trainer, state, first)
    if agent_end == "own":
        np.testing.assert_allclose(value[:, 1], 1.0, atol=0.1)
    elif agent_end == "team":
        np.testing.assert_allclose(value[:, 1], 1 + GAMMA + GAMMA**2, atol=0.2)
    else:
        assert (value[:, 1] > 1.5).all()


@pytest.mark.parametrize(
    ("env", "ppo"),
    [("probe/action", {"optimiser": "sgd", "momentum": 0.0, "lr": 0.5}), ("probe/context", {})],
)
def test_the_paid_action_is_found(env, ppo):
    trainer, state = trained(env, **ppo)
    np.testing.assert_allclose(score(trainer, state), 1.0, atol=0.01)


@pytest.mark.parametrize(("algorithm", "earned"), [("rippo", 1.0), ("ippo", 0.5)])
def test_what_was_seen_before_is_remembered_by_a_gru_alone(algorithm, earned):
    trainer, state = trained("probe/memory", algorithm=algorithm)
    atol = 0.01 if earned == 1 else 0.15  # chance, over 200 episodes
    np.testing.assert_allclose(score(trainer, state), earned, atol=atol)


@pytest.mark.long
@pytest.mark.parametrize(("algorithm", "earned"), [("mat", 1.0), ("mat_dec", 0.5)])
def test_coordination_needs_to_hear_the_others(algorithm, earned):
    """Agent 1 must play what only agent 0 sees. MAT-Dec acts on its own observation alone."""
    trainer, state = trained("probe/coordination", algorithm=algorithm)
    atol = 0.01 if earned == 1 else 0.15  # chance, over 200 episodes
    np.testing.assert_allclose(score(trainer, state), earned, atol=atol)


@pytest.mark.long
def test_ppo_moves_a_particle_to_its_landmark():
    """Continuous thrust, observations and rewards in running units."""
    preset = read_preset(CONFIGS / "ppo_simple.yaml")
    trainer, hyper = make_trainer(build({**preset, "total_updates": 20}))
    step = jax.jit(trainer.step_alike)
    state = jax.jit(trainer.init)(jax.random.key(0))
    for _ in range(20):
        state, _ = step(state, hyper)
    seen = jax.jit(
        lambda p: play_episodes(trainer.env, trainer.players, p, jax.random.key(1), 100)
    )(state.policies)
    assert seen.agent_return.mean() > -9  # about -35 at random, -6 at best
