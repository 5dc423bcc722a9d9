"""Multi-head attention over agents with its residual: x + W·softmax(q·kᵀ/√d)·v.

Two modules with one interface: `all` computes all agents at once (training), `step` one agent after
the other (acting) with a cache that `init_cache` makes. Both have the same parameters.
"""

from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
from flax import linen as nn

from jmarl.kernels.attention import (
    KeyValueCache,
    Lookup,
    attend,
    attend_cached,
    attend_to_table,
)
from jmarl.kernels.linear import fused_affine
from jmarl.kernels.precision import at_least_float32
from jmarl.networks.layers import dense, split_heads


class CausalAttention(Protocol):
    """The interface. `source` and `query` are features `[…, N, D]`, or a table's rows."""

    def all(self, source: Any, query: Any) -> jax.Array:
        """`[…, N, D]`: agent i attends to agents ≤ i."""
        ...

    def init_cache(self, rep: jax.Array) -> Any:
        """Of the agents of `rep` `[E, N, D]`, none of whom has acted."""
        ...

    def step(self, source: Any, query: Any, cache: Any, i: jax.Array) -> tuple[jax.Array, Any]:
        """Row i of `all`, `[E, D]`, from agent i's own row; the cache knows those before it."""
        ...


class Projections(nn.Module):
    """Linear layers to keys, queries and values, and from the heads' results."""

    width: int
    heads: int

    def setup(self) -> None:
        self.key, self.query, self.value, self.proj = (dense(self.width, 0.01) for _ in range(4))

    def project(
        self, source: jax.Array, query: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries, keys and values `[…, heads, D/heads]`, as one or two wide products."""
        layers = [self.key, self.value] + ([self.query] if query is source else [])
        weights = [layer.weights(source.shape[-1]) for layer in layers]
        kernels, biases = zip(*weights, strict=True)
        k, v, *q = (split_heads(x, self.heads) for x in fused_affine(source, kernels, biases))
        return q[0] if q else split_heads(self.query(query), self.heads), k, v


class Attention(Projections):
    """Queries may come from elsewhere than keys; the residual comes from where queries do."""

    causal: bool

    def all(self, source: jax.Array, query: jax.Array) -> jax.Array:
        """`[…, N, D]` × `[…, N, D]` → `[…, N, D]`."""
        mixed = attend(*self.project(source, query), self.causal)
        return query + self.proj(mixed.reshape(query.shape))

    def init_cache(self, rep: jax.Array) -> KeyValueCache:
        return KeyValueCache.empty(rep, self.heads)

    def step(
        self, source: jax.Array, query: jax.Array, cache: KeyValueCache, i: jax.Array
    ) -> tuple[jax.Array, KeyValueCache]:
        mixed, cache = attend_cached(*self.project(source, query), cache, i)
        return query + self.proj(mixed.reshape(query.shape)), cache

    def rows(self, x: jax.Array) -> jax.Array:
        return x


class TableAttention(Projections):
    """Causal, among rows of one small table. Its cache counts how often each row was chosen."""

    causal: ClassVar[bool] = True
    entries: int  # of the table

    def all(self, source: Lookup, query: Lookup) -> jax.Array:
        count = jnp.cumsum(at_least_float32(source.choice), axis=-2)
        return query.rows + self._attend(source, query, count)

    def init_cache(self, rep: jax.Array) -> jax.Array:
        """Counts `[E, K]`."""
        return jnp.zeros((rep.shape[0], self.entries))

    def step(
        self, source: Lookup, query: Lookup, cache: jax.Array, i: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        del i
        count = cache + source.choice
        return query.rows + self._attend(source, query, count), count

    def rows(self, x: Lookup) -> jax.Array:
        return x.rows

    def _attend(self, source: Lookup, query: Lookup, count: jax.Array) -> jax.Array:
        q, k, v = self.project(source.table, query.table)
        kernel, bias = self.proj.weights(self.width)
        assert bias is not None
        return attend_to_table(query.choice, count, q, k, v, kernel, bias)
