"""softmax(q·kᵀ/√d)·v over agents: all at once, agent after agent with a cache, or by a small table.

Queries, keys and values are `[…, N, heads, D/heads]`. The last axis of the results is not yet
projected, except where a table makes the projection part of the sum.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.kernels.linear import affine
from jmarl.kernels.precision import softmax


def attend_reference(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool) -> jax.Array:
    """softmax(q·kᵀ/√d)·v, `[…, N, heads, d]`. Causal: agent i attends to agents ≤ i."""
    scores = jnp.einsum("...qhd,...khd->...hqk", q, k) / q.shape[-1] ** 0.5
    if causal:
        visible = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jnp.where(jnp.broadcast_to(visible, scores.shape), scores, -jnp.inf)
    return jnp.einsum("...hqk,...khd->...qhd", jax.nn.softmax(scores, axis=-1), v)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool) -> jax.Array:
    """The same with heads before agents: the products are then plain matrices, which XLA need not
    copy for one head."""
    n = k.shape[-3]
    visible = jnp.tril(jnp.ones((n, n), bool)) if causal else jnp.ones((n, n), bool)
    q, k, v = (jnp.swapaxes(x, -2, -3) for x in (q, k, v))
    scores = q @ jnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
    visible = visible.reshape((1,) * (scores.ndim - 2) + visible.shape)
    weights = softmax(jnp.where(visible, scores, -jnp.inf), v.dtype)
    return jnp.swapaxes(weights @ v, -2, -3)


# -- agent after agent -----------------------------------------------------------------------------


class KeyValueCache(NamedTuple):
    """Keys and values of the agents that have acted. Worlds and heads are one axis, so that the
    products read the arrays as they are: for a reshape in between XLA would copy all of them in
    every turn."""

    key: jax.Array  # [E·heads, N, D/heads]
    value: jax.Array

    @classmethod
    def empty(cls, rep: jax.Array, heads: int) -> "KeyValueCache":
        """Room for the N agents of `rep` `[E, N, D]`."""
        worlds, agents, width = rep.shape
        room = jnp.zeros((worlds * heads, agents, width // heads), rep.dtype)
        return cls(room, room)


def attend_cached(
    q: jax.Array, k: jax.Array, v: jax.Array, cache: KeyValueCache, i: jax.Array
) -> tuple[jax.Array, KeyValueCache]:
    """Row i of causal attention, from agent i's own `[E, heads, d]`: its key and value join the
    cache. Equals row i of `attend_reference`."""
    size = q.shape[-1]
    rows = (x.reshape(-1, 1, size) for x in (k, v))
    cache = KeyValueCache(
        *(
            lax.dynamic_update_slice_in_dim(old, new, i, axis=1)
            for old, new in zip(cache, rows, strict=True)
        )
    )
    # keys times query: the other way round would transpose the keys
    scores = (cache.key @ q.reshape(-1, size, 1))[..., 0] / size**0.5  # [E·heads, N]
    visible = (jnp.arange(scores.shape[-1]) <= i)[None]
    weights = softmax(jnp.where(visible, scores, -jnp.inf), v.dtype)
    return (weights[:, None] @ cache.value).reshape(q.shape), cache


# -- by a table ------------------------------------------------------------------------------------


class Lookup(NamedTuple):
    """Rows of a small table. What is computed of a table's row is computed once, however many
    agents have chosen it."""

    choice: jax.Array  # […, K], one-hot
    table: jax.Array  # [K, D]

    @property
    def rows(self) -> jax.Array:
        """[…, D]"""
        return affine(self.choice, self.table, None)


def attend_to_table_reference(
    choice: jax.Array,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    kernel: jax.Array,
    bias: jax.Array,
) -> jax.Array:
    """Causal attention among the chosen rows of a table, `choice` `[…, N, K]`, then a projection.
    The table's queries, keys and values are `[K, heads, d]`."""
    q, k, v = (jnp.einsum("...nk,khd->...nhd", choice, x) for x in (q, k, v))
    mixed = attend_reference(q, k, v, causal=True)
    y = mixed.reshape(*choice.shape[:-1], -1) @ kernel
    return y + jnp.broadcast_to(bias, y.shape)


def attend_to_table(
    choice: jax.Array,
    count: jax.Array,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    kernel: jax.Array,
    bias: jax.Array,
) -> jax.Array:
    """Each chosen row attends to `count` `[…, K]` of each of the table's rows. Equal keys have
    equal weights, so softmax over agents is softmax over the table with log count added."""
    scores = jnp.einsum("qhd,khd->qhk", q, k) / q.shape[-1] ** 0.5
    kernel = kernel.reshape(*v.shape[1:], -1).astype(v.dtype)
    values = jnp.einsum("khd,hdo->hko", v, kernel)
    seen = affine(choice, scores.reshape(len(scores), -1), None)
    seen = seen.reshape(*count.shape[:-1], *scores.shape[1:])  # […, heads, K]
    count = jnp.expand_dims(count, -2)
    weights = softmax(jnp.where(count > 0, seen + jnp.log(count), -jnp.inf), v.dtype)
    by_head = weights.reshape(*weights.shape[:-2], -1)
    return affine(by_head, values.reshape(-1, values.shape[-1]), bias)
