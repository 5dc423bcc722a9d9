"""Playing, step by step: what is recorded is what the worlds gave, in running units if so asked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.wrappers.utils import RunningMeanStd

import jmarl
from jmarl.algorithms import make_trainer
from jmarl.config import build
from jmarl.normalize import UNCHANGED
from jmarl.rollout import perceive, rollout, world_keys

T, E, GAMMA = 12, 3, 0.9


@pytest.fixture(scope="module")
def played():
    """A rollout over the ends of episodes, and the same actions played again in bare worlds."""
    chosen = {
        "algorithm": "ppo",
        "env_options": {"max_steps_in_episode": 5},
        "num_envs": E,
        "rollout_length": T,
        "ppo": {"gamma": GAMMA, "num_minibatches": 1},
    }
    trainer, hyper = make_trainer(build(chosen))
    env, key, worlds = trainer.env, jax.random.key(1), jnp.arange(E)
    state = jax.jit(trainer.init)(jax.random.key(0))
    after, (transitions,) = jax.jit(
        lambda s, k: rollout(env, trainer.groups, s, k, worlds, T, "team_mean", hyper.gamma)
    )(state, key)
    step, env_state, bare = jax.jit(env.step), state.env, [state.timestep]
    step_key = jax.random.split(jax.random.clone(key), 3)[1]
    for t, now in enumerate(jax.random.split(step_key, T)):
        action = transitions.decision.action[t]
        env_state, timestep = step(world_keys(now, worlds), env_state, action)
        bare.append(timestep)
    return state, after, transitions, bare


def test_observations_are_seen_in_units_of_all_that_came_before(played):
    """One set of statistics for all worlds, told of every observation before it is used."""
    _, after, transitions, bare = played
    moments = RunningMeanStd(shape=(3,))
    for t in range(T):
        obs = np.asarray(bare[t].obs[:, 0], np.float64)
        moments.update(obs)
        expected = ((obs - moments.mean) / np.sqrt(moments.var + 1e-8)).clip(-10, 10)
        np.testing.assert_allclose(transitions.perception.obs[t, :, 0], expected, atol=1e-4)
    moments.update(np.asarray(bare[T].obs[:, 0]))
    np.testing.assert_allclose(after.normalisers.obs.mean[0], moments.mean, rtol=1e-4)
    np.testing.assert_allclose(after.normalisers.obs.variance[0], moments.var, rtol=1e-4)


def test_rewards_are_scaled_by_their_sum_under_the_trainers_discount(played):
    """Truncated episodes run on: no row is left out, no sum is cut."""
    _, after, transitions, bare = played
    moments, total = RunningMeanStd(shape=()), np.zeros(E)
    for t in range(T):
        reward = np.asarray(bare[t + 1].reward[:, 0], np.float64)
        total = total * GAMMA + reward
        moments.update(total)
        np.testing.assert_allclose(transitions.paid[t, :, 0], reward, rtol=1e-5)
        expected = (reward / np.sqrt(moments.var + 1e-8)).clip(-10, 10)
        np.testing.assert_allclose(transitions.reward[t, :, 0], expected, rtol=1e-4)
    np.testing.assert_allclose(after.normalisers.reward.running[:, 0], total, rtol=1e-5)


def test_worlds_begin_anew_without_a_row_in_between(played):
    _, _, transitions, bare = played
    truncated = np.asarray(transitions.truncated)
    np.testing.assert_array_equal(np.flatnonzero(truncated[:, 0]), [4, 9])
    assert not transitions.terminated.any()
    assert not np.allclose(bare[5].obs, bare[5].final_obs)
    assert (np.asarray(transitions.final_value)[truncated] != 0).all()
    assert (np.asarray(transitions.final_value)[~truncated] == 0).all()


@pytest.mark.parametrize(
    ("name", "looked_at"),
    [
        ("mpe/simple_spread", False),
        ("mpe/simple_speaker_listener", True),  # three words, or five moves
        ("jaxmarl/HeuristicEnemySMAX", True),  # the dead can do nothing
    ],
)
def test_masks_are_looked_at_only_where_something_is_illegal(name, looked_at, foreign):
    env = jmarl.make(name)
    _, timestep = jax.eval_shape(lambda key: env.reset(key, E), jax.random.key(0))
    seen = jax.eval_shape(lambda t: perceive(env.spec, t, UNCHANGED), timestep)
    assert (seen.action_mask is not None) == looked_at
    assert timestep.action_mask.shape == (E, env.spec.num_agents, env.spec.action_space.size)
