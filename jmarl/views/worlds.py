"""Worlds with a memory of their own: numpy arrays in and out, as environments on the host have."""

import secrets
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.envs.base import Env
from jmarl.types import TimeStep


class Worlds:
    """`num_envs` worlds that remember their states and random streams. World i of those with seed
    s is the one world with seed s + i."""

    def __init__(self, env: Env, num_envs: int) -> None:
        self._num_envs, self._keys, self._state = num_envs, None, None

        def reset(keys: jax.Array) -> tuple[jax.Array, Any, TimeStep]:
            following, own = _split(keys)
            return following, *env.reset(own, num_envs)

        def step(keys: jax.Array, state: Any, action: Any) -> tuple[jax.Array, Any, TimeStep]:
            following, own = _split(keys)
            return following, *env.step(own, state, action)

        self._reset, self._step = jax.jit(reset), jax.jit(step)

    def reset(self, seed: int | Sequence[int] | None = None) -> TimeStep:
        """Begin new episodes. Without a seed, the random streams go on."""
        if seed is None and self._keys is None:
            seed = secrets.randbits(31)
        if seed is not None:
            seeds = seed + np.arange(self._num_envs) if np.ndim(seed) == 0 else np.array(seed)
            self._keys = jax.vmap(jax.random.key)(jnp.asarray(seeds % 2**32, jnp.uint32))
        self._keys, self._state, timestep = self._reset(self._keys)
        return _writable(timestep)

    def step(self, action: np.ndarray) -> TimeStep:
        """`action` `[E, N, …]`. Worlds whose episode ends begin the next one in the same step."""
        if self._state is None:
            raise ValueError("call reset() before step().")
        self._keys, self._state, timestep = self._step(self._keys, self._state, action)
        return _writable(timestep)


def _writable(timestep: TimeStep) -> TimeStep:
    """Numpy arrays that a program may change; those of jax are read-only."""
    return jax.tree.map(np.array, timestep)


def _split(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`[E]` keys of the next steps, and of this one."""
    pairs = jax.vmap(jax.random.split)(keys)
    return pairs[:, 0], pairs[:, 1]
