"""Worlds begin again: those that produced a number that is not finite, and those that no checkpoint
holds."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.envs.base import Env
from jmarl.learning.acting import world_keys
from jmarl.learning.collectives import world_axis
from jmarl.types import TrainState


def restart_broken(env: Env, state: TrainState, key: jax.Array, worlds: jax.Array) -> TrainState:
    """Resets worlds whose observations, state or rewards are not finite, and their memory; they
    might never recover by themselves."""
    timestep, count = state.timestep, len(worlds)
    views = (timestep.obs, timestep.state, timestep.reward)
    rows = jnp.concatenate([x.reshape(count, -1) for x in views], axis=1)
    broken = ~jnp.isfinite(rows).all(1)

    def begin_anew() -> tuple[Any, Any]:
        new = env.reset(world_keys(key, worlds), count)
        return jax.tree.map(lambda x, like: x.astype(like.dtype), new, same)

    same = (state.env, timestep)
    new = lax.cond(broken.any(), begin_anew, lambda: same)
    env_state, timestep = jax.tree.map(partial(_by_world, broken), new, same, _world_axes(env))
    memory = jax.tree.map(lambda x: _by_world(broken, jnp.zeros_like(x), x, 0), state.memory)
    returns = jnp.where(broken[:, None], 0.0, state.episode_return)
    begun = {"env": env_state, "timestep": timestep, "episode_return": returns}
    return state.replace(memory=memory, **begun)


def begin_episodes(env: Env, state: TrainState, key: jax.Array) -> TrainState:
    """Resets all worlds and their memory, and keeps what was learned."""
    env_state, timestep = env.reset(key, len(state.timestep.reward))
    memory = jax.tree.map(jnp.zeros_like, state.memory)
    returns = jnp.zeros_like(state.episode_return)
    return state.replace(env=env_state, timestep=timestep, memory=memory, episode_return=returns)


def _world_axes(env: Env) -> tuple[Any, Any]:
    """The axis of every leaf of state and time step that counts worlds; -1 for what all worlds
    share, such as the step of their episodes."""

    def axis(one: Any, two: Any) -> int:
        found = world_axis(one, two)
        return -1 if found is None else found  # None would be no leaf of a tree

    key = jax.eval_shape(lambda: jax.random.key(0))
    one, two = (jax.eval_shape(partial(env.reset, num_envs=n), key) for n in (1, 2))
    return jax.tree.map(axis, one, two)


def _by_world(broken: jax.Array, new: jax.Array, old: jax.Array, axis: int) -> jax.Array:
    """`new` in the broken worlds."""
    if axis < 0:
        return old
    flags = broken.reshape(*(1,) * axis, -1, *(1,) * (old.ndim - axis - 1))
    return jnp.where(flags, new, old)
