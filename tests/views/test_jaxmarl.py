"""Worlds through JaxMARL's interface."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jmarl
from jmarl.errors import ConfigError
from jmarl.views.jaxmarl import JaxMarlView

LENGTH, STEPS = 4, 10
pytestmark = pytest.mark.usefixtures("foreign")  # its methods are jitted with their own keys


@pytest.fixture(scope="module")
def env():
    return jmarl.make("mpe/simple_speaker_listener", episode_length=LENGTH)


@pytest.fixture(scope="module")
def view(env):
    return JaxMarlView(env)


def chosen(key, spec, shape):
    """Random actions by agent."""
    keys = jax.random.split(key, spec.num_agents)
    pairs = zip(spec.agents, spec.action_spaces, keys, strict=True)
    return {agent: space.sample(k, shape) for agent, space, k in pairs}


def keys_of(key, shape):
    return jax.random.split(key, shape)


def played(view, shape):
    """STEPS steps of worlds in batches within batches."""

    def many(function):
        for _ in shape:
            function = jax.vmap(function)
        return function

    def play(key):
        reset_key, key = jax.random.split(key)
        obs, state = many(view.reset)(keys_of(reset_key, shape))

        def step(state, key):
            act_key, step_key = jax.random.split(key)
            actions = chosen(act_key, view.spec, shape)
            seen = many(view.step)(keys_of(step_key, shape), state, actions)
            return seen[1], (seen[0], *seen[2:4])

        _, steps = jax.lax.scan(step, state, jax.random.split(key, STEPS))
        return obs, steps

    return jax.device_get(jax.jit(play)(jax.random.key(3)))


def test_vmapped_steps_are_steps_of_the_native_batch(env, view):
    """Numbers, dictionaries by agent, ends, and first observations of the next episodes."""
    first, (obs, rewards, dones) = played(view, (6,))
    reset_key, key = jax.random.split(jax.random.key(3))
    state, timestep = env.reset(keys_of(reset_key, 6), 6)
    names, step = env.spec.agents, jax.jit(env.step)
    for i, (agent, size) in enumerate(zip(names, env.spec.obs_sizes, strict=True)):
        np.testing.assert_allclose(first[agent], timestep.obs[:, i, :size], atol=1e-6)
    for t, each in enumerate(jax.random.split(key, STEPS)):
        act_key, step_key = jax.random.split(each)
        actions = chosen(act_key, env.spec, (6,))
        joint = jnp.stack([actions[agent] for agent in names], 1)
        state, timestep = step(keys_of(step_key, 6), state, joint)
        for i, (agent, size) in enumerate(zip(names, env.spec.obs_sizes, strict=True)):
            np.testing.assert_allclose(obs[agent][t], timestep.obs[:, i, :size], atol=1e-5)
            np.testing.assert_allclose(rewards[agent][t], timestep.reward[:, i], atol=1e-5)
            assert (dones[agent][t] == (t % LENGTH == LENGTH - 1)).all()
        assert (dones["__all__"][t] == (t % LENGTH == LENGTH - 1)).all()


def test_vmaps_within_vmaps_are_one_batch_too(view):
    """In JAX a split of one key into [2, 3] is the split into 6, reshaped."""
    flat, nested = played(view, (6,)), played(view, (2, 3))
    for one, other in zip(jax.tree.leaves(flat), jax.tree.leaves(nested), strict=True):
        axis = 0 if one.shape[0] == 6 else 1
        np.testing.assert_allclose(one, other.reshape(one.shape), atol=1e-6, err_msg=str(axis))


def test_worlds_are_reset_one_by_one(view):
    """A world that a script resets in the middle ends later than the others."""
    keys = keys_of(jax.random.key(0), 3)
    _, state = jax.vmap(view.reset)(keys)
    _, fresh = jax.vmap(view.reset)(keys)
    actions = chosen(jax.random.key(1), view.spec, (3,))
    ends = []
    for t in range(LENGTH + 2):
        if t == 2:
            state = jax.tree.map(lambda old, new: old.at[1].set(new[1]), state, fresh)
        _, state, _, dones, _ = jax.vmap(view.step)(keys, state, actions)
        ends.append(np.asarray(dones["__all__"]))
    at = [list(np.flatnonzero(of_world)) for of_world in np.array(ends).T]
    assert at == [[LENGTH - 1], [LENGTH + 1], [LENGTH - 1]]


def test_jaxmarl_s_own_parts_take_it(view):
    from jaxmarl.environments.multi_agent_env import MultiAgentEnv
    from jaxmarl.wrappers.baselines import LogWrapper, get_space_dim

    assert isinstance(view, MultiAgentEnv)
    assert [get_space_dim(view.action_space(agent)) for agent in view.agents] == [3, 5]
    assert [view.observation_space(agent).shape for agent in view.agents] == [(3,), (11,)]
    logged = LogWrapper(view)
    _, state = logged.reset(jax.random.PRNGKey(0))
    for _ in range(LENGTH):
        actions = chosen(jax.random.key(1), view.spec, ())
        _, state, _, _, info = logged.step(jax.random.PRNGKey(1), state, actions)
    assert info["returned_episode"].all()
    assert (info["returned_episode_lengths"] == LENGTH).all()
    masks = view.get_avail_actions(state.env_state)
    assert {agent: mask.shape for agent, mask in masks.items()} == {
        "speaker_0": (3,),
        "listener_0": (5,),
    }
    with pytest.raises(ConfigError, match="reset_state is not supported"):
        view.step(jax.random.PRNGKey(1), state.env_state, actions, state.env_state)
