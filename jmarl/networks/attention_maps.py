"""Who attends to whom: the weights inside a transformer, recorded while it computes. Networks know
nothing of it, so that training is the same program with or without."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jmarl.kernels.precision import at_least_float32, softmax
from jmarl.networks.attention import Attention, TableAttention
from jmarl.networks.layers import split_heads


def record_attention(compute: Callable[[], Any]) -> dict[tuple[str, ...], jax.Array]:
    """The weights `[…, heads, N, N]` of every attention that `compute` calls, by its path: row i is
    what agent i gives to each, and sums to 1."""
    found: dict[tuple[str, ...], jax.Array] = {}

    def record(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module = context.module
        if isinstance(module, Attention | TableAttention) and context.method_name == "all":
            source, query = (module.rows(x) for x in args)
            found[module.path] = weights(module, source, query)
        return call(*args, **kwargs)

    with nn.intercept_methods(record):
        compute()
    return found


def weights(
    attention: Attention | TableAttention, source: jax.Array, query: jax.Array
) -> jax.Array:
    """softmax(q·kᵀ/√d) of `[…, N, D]` × `[…, N, D]`, as `[…, heads, N, N]`."""
    k, q = (
        split_heads(at_least_float32(x), attention.heads)
        for x in (attention.key(source), attention.query(query))
    )
    scores = jnp.einsum("...qhd,...khd->...hqk", q, k) / q.shape[-1] ** 0.5
    if attention.causal:
        visible = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        visible = visible.reshape((1,) * (scores.ndim - 2) + visible.shape)
        scores = jnp.where(visible, scores, -jnp.inf)
    return softmax(scores, scores.dtype)
