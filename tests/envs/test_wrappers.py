"""Episode statistics against sums taken in numpy."""

import jax
import jax.numpy as jnp
import numpy as np

import jmarl
from jmarl.envs.wrappers import EpisodeStatistics, team_return


def record(env, num_envs, num_steps):
    def program(key):
        reset_key, play_key = jax.random.split(key)

        def body(state, key):
            act_key, step_key = jax.random.split(key)
            action = env.spec.action_space.sample(act_key, (num_envs, env.spec.num_agents))
            state, timestep = env.step(step_key, state, action)
            return state, (state, timestep)

        state, _ = env.reset(reset_key, num_envs)
        return jax.lax.scan(body, state, jax.random.split(play_key, num_steps))[1]

    return jax.jit(program)(jax.random.key(0))


def test_returns_and_lengths_of_finished_episodes():
    env = EpisodeStatistics(jmarl.make("mpe/simple_tag", episode_length=6))
    state, timestep = record(env, num_envs=5, num_steps=14)
    reward = np.asarray(timestep.reward)
    np.testing.assert_array_equal(state.episode_return[4], 0)  # nothing finished yet
    np.testing.assert_allclose(state.episode_return[5], reward[:6].sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(state.episode_return[10], state.episode_return[5])
    second = reward[6:12].sum(0)
    np.testing.assert_allclose(state.episode_return[13], second, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(state.running_return[13], reward[12:].sum(0), rtol=1e-5, atol=1e-5)
    lengths = np.asarray(state.episode_length)[[4, 5, 13]]
    np.testing.assert_array_equal(lengths, [[0] * 5, [6] * 5, [6] * 5])


def test_worlds_that_end_apart_are_counted_apart(foreign):
    env = EpisodeStatistics(jmarl.make("gymnax/CartPole-v1"))
    state, timestep = record(env, num_envs=4, num_steps=80)
    ends = np.asarray(timestep.over)
    assert len({tuple(np.flatnonzero(ends[:, e])) for e in range(4)}) > 1
    for e in range(4):
        lengths = np.diff(np.concatenate([[-1], np.flatnonzero(ends[:, e])]))
        for t, length in zip(np.flatnonzero(ends[:, e]), lengths, strict=True):
            assert state.episode_length[t, e] == length
            assert state.episode_return[t, e, 0] == length  # CartPole pays 1 per step


def test_team_returns_sum_over_members():
    spec = jmarl.make("mpe/simple_tag").spec  # three hunters, one prey
    sums = team_return(spec, jnp.array([[1.0, 2.0, 3.0, -7.0]]))
    np.testing.assert_array_equal(sums, [[6.0, -7.0]])
