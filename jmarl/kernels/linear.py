"""Linear layers over the last axis of `[…, D]`.

Rows are flattened: a kernel's gradient sums over one long axis much faster than over several.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.kernels.matmul import matmul, matmul_transposed


def affine_reference(x: jax.Array, kernel: jax.Array, bias: jax.Array | None) -> jax.Array:
    """x·W + b, `[…, D]` → `[…, F]`."""
    y = jnp.einsum("...d,df->...f", x, kernel)
    return y if bias is None else y + jnp.broadcast_to(bias, y.shape)


def affine(x: jax.Array, kernel: jax.Array, bias: jax.Array | None) -> jax.Array:
    """x·W + b in x's precision."""
    y = matmul(x.reshape(-1, x.shape[-1]), kernel)
    if bias is not None:
        y = y + bias[None]
    return y.reshape(*x.shape[:-1], kernel.shape[-1]).astype(x.dtype)


def affine_last(x: jax.Array, kernel: jax.Array, bias: jax.Array | None) -> jax.Array:
    """x·W + b in the parameters' precision, with the few outputs first in memory."""
    y = matmul_transposed(x.reshape(-1, x.shape[-1]), kernel)
    if bias is not None:
        y = y + bias[:, None]
    return y.T.reshape(*x.shape[:-1], kernel.shape[-1])


def fused_affine_reference(
    x: jax.Array, kernels: Sequence[jax.Array], biases: Sequence[jax.Array]
) -> list[jax.Array]:
    """x·W + b for each W and b."""
    pairs = zip(kernels, biases, strict=True)
    return [affine_reference(x, kernel, bias) for kernel, bias in pairs]


def fused_affine(
    x: jax.Array, kernels: Sequence[jax.Array], biases: Sequence[jax.Array]
) -> list[jax.Array]:
    """The same as one wide product."""
    y = affine(x, jnp.concatenate(kernels, axis=1), jnp.concatenate(biases))
    return jnp.split(y, np.cumsum([len(bias) for bias in biases])[:-1], axis=-1)


def fold_scale_reference(
    y: jax.Array, scale: jax.Array, shift: jax.Array, kernel: jax.Array, bias: jax.Array
) -> jax.Array:
    """(y·s + t)·W + b: a linear layer that reads what a LayerNorm has scaled and shifted."""
    y = y * jnp.broadcast_to(scale, y.shape) + jnp.broadcast_to(shift, y.shape)
    return affine_reference(y, kernel, bias)


def fold_scale(
    scale: jax.Array, shift: jax.Array, kernel: jax.Array, bias: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(y·s + t)·W + b = y·(s·W) + (t·W + b): the kernel and the bias that read y instead. Weights
    have fewer rows than y."""
    return scale[:, None] * kernel, (shift[:, None] * kernel).sum(0) + bias
