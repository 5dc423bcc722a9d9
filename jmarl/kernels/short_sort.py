"""Sorts few rows in many worlds, by the rank of each: comparisons and selections of long vectors.
XLA for CPUs calls a function for every comparison of a sort."""

import functools
import operator

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jmarl.kernels.short_reductions import UNROLL_LIMIT


def smallest_rows_reference(
    key: Float[Array, "N K E"], rows: Float[Array, "K F E"], count: int
) -> Float[Array, "N count F E"]:
    """For each of N the `count` rows with the smallest keys, in ascending order. Stable. Keys are
    not negative."""
    order = jnp.argsort(key, axis=1, stable=True)[:, :count]
    everywhere = jnp.broadcast_to(rows[None], (len(key), *rows.shape))
    return jnp.take_along_axis(everywhere, order[:, :, None], axis=1)


def smallest_rows(
    key: Float[Array, "N K E"], rows: Float[Array, "K F E"], count: int
) -> Float[Array, "N count F E"]:
    """The same, by ranks. XLA would compute the ranks anew for every number of a row, if they were
    not the result of a branch; the condition always holds."""
    size = len(rows)
    if size > UNROLL_LIMIT:
        return smallest_rows_reference(key, rows, count)
    known = lax.stop_gradient(key)
    rank = lax.cond(~(known[0, 0, 0] < 0), _ranks, jnp.zeros_like, known)
    slot = np.arange(count)[None, :, None, None]
    at_slot = (
        jnp.where(rank[:, k][:, None, None] == slot, rows[k][None, None], 0.0) for k in range(size)
    )
    return functools.reduce(operator.add, at_slot)


def _ranks(key: Float[Array, "N K E"]) -> Float[Array, "N K E"]:
    """How many rows come before each."""
    index = np.arange(key.shape[1])[None, :, None]

    def before(j: int) -> Array:
        own = key[:, j : j + 1]
        return (own < key) | ((own == key) & (j < index))

    comes = (before(j).astype(key.dtype) for j in range(key.shape[1]))
    return functools.reduce(operator.add, comes)
