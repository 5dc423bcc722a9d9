"""A function of a batch of worlds whose vmap is one call with the worlds of all batches."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array

from jmarl.errors import ConfigError
from jmarl.learning.collectives import world_axis

SHARED = -1  # the axis of worlds of an array that all worlds share


def merged_batches(env: Any) -> tuple[Callable, Callable]:
    """`reset(keys)` and `step(keys, state, action)` of a batch of worlds, which need not be at the
    same step of their episodes."""
    if env.spec.in_step:
        if not hasattr(env, "worlds_apart"):
            raise ConfigError(
                f"{env.spec.name} keeps all worlds at the same step (in_step=True), so its worlds "
                "cannot be reset one by one: give it a method worlds_apart()."
            )
        env = env.worlds_apart()
    key = jax.random.key(0)
    few, many = (jax.eval_shape(partial(env.reset, num_envs=n), key) for n in (2, 3))
    axes = jax.tree.map(_axis, few, many)

    def reset(keys: Array) -> Any:
        return env.reset(keys, len(keys))

    whole_reset = _with_rule(reset, (0,), axes)
    whole_step = _with_rule(env.step, (0, axes[0], 0), axes)
    return whole_reset, whole_step


def _axis(few: Any, many: Any) -> int:
    found = world_axis(few, many)
    return SHARED if found is None else found


def _with_rule(function: Callable, in_axes: tuple, out_axes: Any) -> Callable:
    whole = custom_vmap(function)

    @whole.def_vmap
    def merge_worlds(size: int, batched: list, *given: Any) -> tuple[Any, Any]:
        """Also serves vmaps within vmaps: each calls `whole` again."""
        merged = jax.tree.map(partial(_merged, size), given, tuple(batched), in_axes)
        after = jax.tree.map(partial(_split, size), whole(*merged), out_axes)
        return after, jax.tree.map(lambda _: True, after)

    return whole


def _merged(size: int, x: Array, batched: bool, axis: int) -> Array:
    """`[size, …, E, …]` as `[…, size · E, …]`."""
    if axis == SHARED:
        return x[0] if batched else x
    x = x if batched else jnp.broadcast_to(x, (size, *x.shape))
    x = jnp.moveaxis(x, 0, axis)
    return x.reshape(*x.shape[:axis], size * x.shape[axis + 1], *x.shape[axis + 2 :])


def _split(size: int, x: Array, axis: int) -> Array:
    """The inverse of `_merged`."""
    if axis == SHARED:
        return jnp.broadcast_to(x, (size, *x.shape))
    x = x.reshape(*x.shape[:axis], size, x.shape[axis] // size, *x.shape[axis + 1 :])
    return jnp.moveaxis(x, axis, 0)
