"""Worlds that are shared out: every device plays and learns from a shard of them by itself, and
they meet only for sums over all of them.

What is summed over worlds takes a `Sum`. A run on one device has all worlds: nothing is left to
add. Shards are an axis named `data`, of devices (`shared_out` of `jmarl.execution.sharding`) or, on
one device, of `vmap`: it computes the same.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jmarl.types import DATA

Sum = Callable[[Any], Any]


def alone(tree: Any) -> Any:
    """What was added up over some worlds was so over all."""
    return tree


def together(tree: Any) -> Any:
    """Σ over the shards, as one array: they meet once."""
    flat, back = ravel_pytree(tree)
    return back(lax.psum(flat, DATA))


def world_axis(few: Any, many: Any) -> int | None:
    """Which axis of an array counts worlds: the one that grows with them, for adapters lay it where
    they like. None for what all worlds share. Given are its shapes with fewer and more worlds."""
    pairs = enumerate(zip(few.shape, many.shape, strict=True))
    return next((axis for axis, (a, b) in pairs if a != b), None)


def world_numbers(num_envs: int, shards: int) -> jax.Array:
    """`[E]`: the numbers of a shard's worlds among all worlds."""
    first = lax.axis_index(DATA) * num_envs if shards > 1 else 0
    return first + jnp.arange(num_envs)
