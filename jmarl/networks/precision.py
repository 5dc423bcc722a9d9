"""Mixed precision. Networks compute in the precision of their inputs, whatever their parameters
have: of inputs in bfloat16 all products are, but sums over many terms (products' own, statistics
of LayerNorm, softmax, states of GRUs) and what is read outside stay in float32. Of inputs in the
parameters' precision nothing is cast at all.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.literals import Precision


def narrow(x: jax.Array, precision: Precision) -> jax.Array:
    """Floats as a network is to take them; float32 leaves them as they are, in whatever they are
    handed in."""
    return x.astype(jnp.bfloat16) if precision == "bfloat16" else x


def wide(x: jax.Array) -> jax.Array:
    """At least float32."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def softmax(scores: jax.Array, dtype: Any) -> jax.Array:
    """Over the last axis, normalised in at least float32, then given in `dtype`."""
    return jax.nn.softmax(wide(scores), axis=-1).astype(dtype)


def product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Rows `[B, D]` times `[D, F]`, multiplied in x's precision, summed in the kernel's."""
    return _plain(x, kernel) if x.dtype == kernel.dtype else _mixed(x, kernel)


@jax.custom_vjp
def _plain(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return x @ kernel


def _plain_gradient(
    kept: tuple[jax.Array, jax.Array], grad: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    return grad @ kernel.T, outer_sum(x, grad)


_plain.defvjp(lambda x, kernel: (x @ kernel, (x, kernel)), _plain_gradient)


def outer_sum(x: jax.Array, grad: jax.Array) -> jax.Array:
    """Σ over rows of xᵀ·g, `[B, D]` and `[B, F]` → `[D, F]`: a kernel's gradient."""
    return lax.platform_dependent(x, grad, cpu=_outer_sum_on_cpu, default=lambda x, g: x.T @ g)


NARROW, LARGE = 16, 64 * 128  # columns, and entries of a product
BLOCK = 192  # rows: a block of them and its product stay in the innermost caches


def _outer_sum_on_cpu(x: jax.Array, grad: jax.Array) -> jax.Array:
    """XLA's product over a long axis that comes first has less than half of a core's speed if it is
    small. Blocks of rows, turned so that their axis comes last, are a batch of products of 1.3
    times that, turning included, and fill all cores (64 × 64, 768 to 12,288 rows)."""
    (rows, inputs), outputs = x.shape, grad.shape[1]
    block = next((n for n in range(BLOCK, BLOCK // 3, -1) if rows % n == 0), rows)
    if min(inputs, outputs) < NARROW or inputs * outputs > LARGE or block == rows:
        return x.T @ grad
    turned = lax.optimization_barrier(jnp.swapaxes(x.reshape(-1, block, inputs), 1, 2))
    return (turned @ grad.reshape(-1, block, outputs)).sum(0)


@jax.custom_vjp
def _mixed(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jnp.matmul(x, kernel.astype(x.dtype), preferred_element_type=kernel.dtype)


def _mixed_gradient(
    kept: tuple[jax.Array, jax.Array], grad: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Both products in x's precision, which the derived ones would not have: the gradient arrives
    in the kernel's. The kernel's own gradient is never rounded to fewer bits."""
    x, kernel = kept
    grad = grad.astype(x.dtype)
    of_kernel = jnp.matmul(x.T, grad, preferred_element_type=kernel.dtype)
    return grad @ kernel.astype(x.dtype).T, of_kernel


_mixed.defvjp(lambda x, kernel: (_mixed(x, kernel), (x, kernel)), _mixed_gradient)


@jax.custom_vjp
def turned_product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """(x·W)ᵀ, `[B, D]` and `[D, F]` → `[F, B]`, for few F: what is then computed of them, and the
    kernel's gradient, are long vectors. Precisions are those of `product`."""
    return lax.platform_dependent(product(x, kernel), cpu=_turned_on_cpu, default=jnp.transpose)


def _turned_on_cpu(x: jax.Array) -> jax.Array:
    """A product with 1: XLA would make a transpose part of every operation that reads it, and then
    not vectorise these."""
    if x.shape[1] >= NARROW:
        return lax.optimization_barrier(x).T  # not as part of the product, which it may not support
    rows_with_rows = (((1,), (1,)), ((), ()))
    return lax.dot_general(jnp.eye(x.shape[1], dtype=x.dtype), x, rows_with_rows)


def _turned_gradient(
    kept: tuple[jax.Array, jax.Array], grad: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The barrier keeps XLA from turning x instead of the small result."""
    x, kernel = kept
    grad = grad.astype(x.dtype)
    of_kernel = jnp.matmul(grad, x, preferred_element_type=kernel.dtype)
    return grad.T @ kernel.astype(x.dtype).T, lax.optimization_barrier(of_kernel).T


turned_product.defvjp(lambda x, kernel: (turned_product(x, kernel), (x, kernel)), _turned_gradient)
