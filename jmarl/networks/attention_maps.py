"""Who attends to whom: the weights inside of a transformer, overheard while it computes. Networks
know nothing of it, so that training is the same program with or without."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jmarl.networks.attention import Attention
from jmarl.networks.layers import split_heads
from jmarl.networks.precision import softmax, wide


def overheard(compute: Callable[[], Any]) -> dict[tuple[str, ...], jax.Array]:
    """By the path of every attention that `compute` passes through its weights
    `[…, heads, N, N]`: row i is what agent i gives to each, and sums to 1."""
    heard: dict[tuple[str, ...], jax.Array] = {}

    def listen(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module, method = context.module, context.method_name
        if isinstance(module, Attention) and method == "__call__":
            heard[module.path] = weights(module, *args)
        elif isinstance(module, Attention) and method == "among":
            rows = args[0].rows  # counted by what they are; here everyone's is wanted
            heard[module.path] = weights(module, rows, rows)
        return call(*args, **kwargs)

    with nn.intercept_methods(listen):
        compute()
    return heard


def weights(attention: Attention, source: jax.Array, query: jax.Array) -> jax.Array:
    """softmax(q·kᵀ/√d) of `[…, N, D]` × `[…, N, D]`, as `[…, heads, N, N]`."""
    k, q = (
        split_heads(wide(x), attention.heads)
        for x in (attention.key(source), attention.query(query))
    )
    scores = jnp.einsum("...qhd,...khd->...hqk", q, k) / q.shape[-1] ** 0.5
    if attention.causal:
        visible = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        visible = visible.reshape((1,) * (scores.ndim - 2) + visible.shape)
        scores = jnp.where(visible, scores, -jnp.inf)
    return softmax(scores, scores.dtype)
