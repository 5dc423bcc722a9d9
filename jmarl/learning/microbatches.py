"""Sums over a batch that is too large to be looked at whole: piece by piece. Pieces are as small as
a processor's cache, so that what is computed of one never leaves it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def fewest_pieces(length: int, rows: int, limit: int | None) -> int:
    """Into how many equal pieces `rows` are cut along an axis of `length`: as few as leave no more
    than `limit` in each, or as many as there can be."""
    if limit is None:
        return 1
    fits = (n for n in range(1, length + 1) if length % n == 0 and rows <= n * limit)
    return next(fits, length)


def sum_of_pieces(function: Callable[[Any], Any], batch: Any) -> Any:
    """Σ function(piece) over the first axis, one piece after the other."""
    first = jax.tree.map(lambda x: x[0], batch)
    if len(jax.tree.leaves(batch)[0]) == 1:
        return function(first)

    def add(so_far: Any, piece: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, so_far, function(piece)), None

    shapes = jax.eval_shape(function, first)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return lax.scan(add, nothing, batch)[0]
