"""Sums over a batch, one microbatch after the other. A microbatch is small enough that its
intermediate results stay in a processor's cache."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.types import Tree

Part = TypeVar("Part")


def num_microbatches(length: int, rows: int, limit: int | None) -> int:
    """The number of equal microbatches that `rows` are cut into along an axis of `length`: as few
    as leave at most `limit` rows in each, or as many as possible."""
    if limit is None:
        return 1
    fits = (n for n in range(1, length + 1) if length % n == 0 and rows <= n * limit)
    return next(fits, length)


def sum_over_microbatches(function: Callable[[Part], Tree], batch: Part) -> Tree:
    """Σ function(microbatch) over the first axis, in a scan."""
    first = jax.tree.map(lambda x: x[0], batch)
    if len(jax.tree.leaves(batch)[0]) == 1:
        return function(first)

    def add(so_far: Tree, piece: Part) -> tuple[Tree, None]:
        return jax.tree.map(jnp.add, so_far, function(piece)), None

    shapes = jax.eval_shape(function, first)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return lax.scan(add, nothing, batch)[0]
