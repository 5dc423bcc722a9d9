"""Probe worlds do what their table says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jmarl


def episode(name, action, num_envs=64, **options):
    """First time step, and the stacked steps of one episode under one joint action per world."""
    env = jmarl.make(name, **options)
    state, first = jax.jit(env.reset, static_argnums=1)(jax.random.key(0), num_envs)
    step, steps = jax.jit(env.step), []
    for key in jax.random.split(jax.random.key(1), env.spec.episode_length):
        state, timestep = step(key, state, action(first))
        steps.append(timestep)
    return first, jax.tree.map(lambda *x: jnp.stack(x), *steps)


def ones(first):
    return jnp.ones(first.obs.shape[:2], int)


def test_constant():
    _, steps = episode("probe/constant", ones)
    np.testing.assert_array_equal(steps.reward, 1)
    assert steps.terminated.all()
    assert not steps.truncated.any()


def test_observation_pays_what_is_seen():
    first, steps = episode("probe/observation", ones)
    np.testing.assert_array_equal(steps.reward[0], first.obs[..., 1] - first.obs[..., 0])
    assert set(np.unique(steps.reward)) == {-1, 1}


def test_delayed_pays_after_the_second_step():
    first, steps = episode("probe/delayed", ones)
    np.testing.assert_array_equal(steps.reward[:, 0, 0], [0, 1])
    np.testing.assert_array_equal(steps.terminated[:, 0, 0], [False, True])
    np.testing.assert_array_equal(first.obs[0, 0], [1, 0])
    np.testing.assert_array_equal(steps.final_obs[:, 0, 0], [[0, 1], [0, 0]])
    np.testing.assert_array_equal(steps.obs[:, 0, 0], [[0, 1], [1, 0]])  # begun anew


def test_death_takes_one_agent_out():
    first, steps = episode("probe/death", ones)
    np.testing.assert_array_equal(steps.reward, 1)
    np.testing.assert_array_equal(
        steps.terminated[:, 0], [[False, True], [False, True], [True] * 2]
    )
    np.testing.assert_array_equal(steps.over[:, 0], [False, False, True])
    np.testing.assert_array_equal(first.active[0], [True, True])
    np.testing.assert_array_equal(steps.active[:, 0, 1], [False, False, True])  # begun anew
    np.testing.assert_array_equal(first.obs[0], [[1, 0], [0, 1]])
    np.testing.assert_array_equal(steps.final_obs[:, 0, 1], [[1, 0]] * 3)


def test_action():
    _, right = episode("probe/action", ones)
    np.testing.assert_array_equal(right.reward, 1)
    _, wrong = episode("probe/action", lambda first: 0 * ones(first))
    np.testing.assert_array_equal(wrong.reward, 0)


def test_memory_pays_in_the_second_step_what_was_seen_in_the_first():
    first, steps = episode("probe/memory", lambda first: first.obs[..., 1].astype(int))
    np.testing.assert_array_equal(steps.reward[0], 0)
    np.testing.assert_array_equal(steps.reward[1], 1)
    np.testing.assert_array_equal(steps.obs[0], 0)
    np.testing.assert_array_equal(first.obs.sum(-1), 1)


def test_context_pays_the_action_that_is_seen():
    _, right = episode("probe/context", lambda first: first.obs[..., 1].astype(int))
    np.testing.assert_array_equal(right.reward, 1)
    first, fixed = episode("probe/context", ones)
    np.testing.assert_array_equal(fixed.reward[0], first.obs[..., 1])


def test_coordination_needs_what_only_agent_0_sees():
    first, joint = episode(
        "probe/coordination", lambda first: jnp.repeat(first.obs[:, :1, 1], 2, 1).astype(int)
    )
    np.testing.assert_array_equal(first.obs[:, 1], 0)
    np.testing.assert_array_equal(joint.reward, 1)
    # agent 0 right, agent 1 guessing 1: right in half of the worlds
    _, apart = episode(
        "probe/coordination",
        lambda first: jnp.stack([first.obs[:, 0, 1], jnp.ones(2000)], 1).astype(int),
        num_envs=2000,
    )
    np.testing.assert_allclose(apart.reward.mean(), 0.5, atol=0.05)


@pytest.mark.parametrize("name", ["action", "context", "coordination"])
def test_continuous_actions_are_paid_by_closeness(name):
    # 0.5 is halfway: 1 - 0.25, for two agents (1 - 0.25)²
    _, steps = episode(
        f"probe/{name}",
        lambda first: jnp.full((*first.obs.shape[:2], 1), 0.5),
        actions="continuous",
    )
    agents = steps.reward.shape[-1]
    np.testing.assert_allclose(steps.reward, 0.75**agents)
