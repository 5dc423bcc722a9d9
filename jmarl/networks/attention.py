"""Multi-head attention over agents: all at once (training) or one at a time (acting)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from jmarl.networks.layers import affine, dense, side_by_side, split_heads
from jmarl.networks.precision import softmax


class Cache(NamedTuple):
    """Keys and values of the agents that have acted. Worlds and heads are one axis, so that the
    products read the arrays as they are: any reshape in between makes XLA copy all of them, every
    turn."""

    key: jax.Array  # [E·heads, N, D/heads]
    value: jax.Array

    @classmethod
    def empty(cls, rep: jax.Array, heads: int) -> "Cache":
        """Room for the N agents of `rep` `[E, N, D]`."""
        worlds, agents, width = rep.shape
        room = jnp.zeros((worlds * heads, agents, width // heads), rep.dtype)
        return cls(room, room)


class Lookup(NamedTuple):
    """Rows of a small table. What is computed of a row is then computed once, not for everyone who
    has chosen it."""

    choice: jax.Array  # […, K], one-hot
    table: jax.Array  # [K, D]

    @property
    def rows(self) -> jax.Array:
        """[…, D]"""
        return affine(self.choice, self.table, None)


class Attention(nn.Module):
    """softmax(q·kᵀ/√d)·v, then a projection; queries may come from elsewhere than keys."""

    width: int
    heads: int
    causal: bool

    def setup(self) -> None:
        self.key, self.query, self.value, self.proj = (dense(self.width, 0.01) for _ in range(4))

    def __call__(self, source: jax.Array, query: jax.Array) -> jax.Array:
        """`[…, N, D]` × `[…, N, D]` → `[…, N, D]`. Causal: agent i attends to agents ≤ i."""
        k, v, q = (split_heads(x, self.heads) for x in self._project(source, query))
        n = source.shape[-2]
        visible = jnp.tril(jnp.ones((n, n), bool)) if self.causal else jnp.ones((n, n), bool)
        return self._mix(q, k, v, visible)

    def step(
        self, source: jax.Array, query: jax.Array, cache: Cache, i: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """Agent i alone, `[E, D]`: its key and value join the cache, its query looks back."""
        size = self.width // self.heads
        k, v, q = (x.reshape(-1, 1, size) for x in self._project(source, query))
        cache = Cache(
            lax.dynamic_update_slice_in_dim(cache.key, k, i, axis=1),
            lax.dynamic_update_slice_in_dim(cache.value, v, i, axis=1),
        )
        # keys times query: the other way round would transpose the keys
        scores = (cache.key @ q.reshape(-1, size, 1))[..., 0] / size**0.5  # [E·heads, N]
        visible = (jnp.arange(scores.shape[-1]) <= i)[None]
        weights = softmax(jnp.where(visible, scores, -jnp.inf), v.dtype)
        mixed = weights[:, None] @ cache.value
        return self.proj(mixed.reshape(source.shape)), cache

    def among(self, source: Lookup, count: jax.Array) -> jax.Array:
        """Each chosen row attends to rows of the same table, `count` `[…, K]` of each: equal keys
        have equal weights, so softmax over agents is softmax over the table with log count added.
        """
        k, v, q = (split_heads(x, self.heads) for x in self._project(source.table, source.table))
        scores = jnp.einsum("qhd,khd->qhk", q, k) / q.shape[-1] ** 0.5
        kernel, bias = self.proj.weights(self.width)
        kernel = kernel.reshape(*v.shape[1:], self.width).astype(v.dtype)
        values = jnp.einsum("khd,hdo->hko", v, kernel)
        seen = affine(source.choice, scores.reshape(len(scores), -1), None)
        seen = seen.reshape(*count.shape[:-1], *scores.shape[1:])  # […, heads, K]
        count = jnp.expand_dims(count, -2)
        weights = softmax(jnp.where(count > 0, seen + jnp.log(count), -jnp.inf), v.dtype)
        by_head = weights.reshape(*weights.shape[:-2], -1)
        return affine(by_head, values.reshape(-1, self.width), bias)

    def _project(self, source: jax.Array, query: jax.Array) -> list[jax.Array]:
        """Keys, values, queries `[…, D]`."""
        if query is source:
            return side_by_side(source, [self.key, self.value, self.query])
        return [*side_by_side(source, [self.key, self.value]), self.query(query)]

    def _mix(self, q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array) -> jax.Array:
        """`visible`: `[queries, keys]`."""
        # heads before agents: the products are then plain matrices, free of copies for one head
        q, k, v = (jnp.swapaxes(x, -2, -3) for x in (q, k, v))
        scores = q @ jnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
        seen = visible.reshape((1,) * (scores.ndim - 2) + visible.shape)
        weights = softmax(jnp.where(seen, scores, -jnp.inf), v.dtype)
        mixed = jnp.swapaxes(weights @ v, -2, -3)
        return self.proj(mixed.reshape(*mixed.shape[:-2], self.width))
