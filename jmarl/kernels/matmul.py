"""Matrix products whose gradients XLA for CPUs would compute slowly.

The rows `x` may be in bfloat16 while the kernel is in float32. Then the products multiply bfloat16
numbers and add them up in float32.
"""

import jax
import jax.numpy as jnp
from jax import lax

NARROW, LARGE = 16, 64 * 128  # columns, and entries of a product
BLOCK = 192  # rows: a block of them and its product stay in the innermost caches


# -- x·W -------------------------------------------------------------------------------------------


def matmul_reference(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """x·W, `[B, D]` and `[D, F]` → `[B, F]`."""
    return x @ kernel


def matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """x·W, multiplied in x's precision, summed in the kernel's."""
    return _plain(x, kernel) if x.dtype == kernel.dtype else _mixed(x, kernel)


@jax.custom_vjp
def _plain(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return x @ kernel


def _plain_gradient(
    kept: tuple[jax.Array, jax.Array], grad: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    return grad @ kernel.T, kernel_gradient(x, grad)


_plain.defvjp(lambda x, kernel: (x @ kernel, (x, kernel)), _plain_gradient)


@jax.custom_vjp
def _mixed(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jnp.matmul(x, kernel.astype(x.dtype), preferred_element_type=kernel.dtype)


def _mixed_gradient(
    kept: tuple[jax.Array, jax.Array], grad: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Both products multiply in x's precision. Automatic differentiation would multiply in the
    kernel's, because the gradient arrives in it. The kernel's own gradient is never rounded."""
    x, kernel = kept
    grad = grad.astype(x.dtype)
    of_kernel = jnp.matmul(x.T, grad, preferred_element_type=kernel.dtype)
    return grad @ kernel.astype(x.dtype).T, of_kernel


_mixed.defvjp(lambda x, kernel: (_mixed(x, kernel), (x, kernel)), _mixed_gradient)


# -- the gradient of W -----------------------------------------------------------------------------


def kernel_gradient_reference(x: jax.Array, grad: jax.Array) -> jax.Array:
    """Σ over rows of xᵀ·g, `[B, D]` and `[B, F]` → `[D, F]`."""
    return x.T @ grad


def kernel_gradient(x: jax.Array, grad: jax.Array) -> jax.Array:
    """xᵀ·g, in blocks of rows on a CPU."""
    return lax.platform_dependent(
        x, grad, cpu=_kernel_gradient_on_cpu, default=lambda x, g: x.T @ g
    )


def _kernel_gradient_on_cpu(x: jax.Array, grad: jax.Array) -> jax.Array:
    """A small product that sums over a long leading axis reaches less than half of a core's speed
    in XLA. A batch of products, one for each block of transposed rows, reaches 1.3 times that
    speed, transposition included, and uses all cores (64 × 64, 768 to 12,288 rows)."""
    (rows, inputs), outputs = x.shape, grad.shape[1]
    block = next((n for n in range(BLOCK, BLOCK // 3, -1) if rows % n == 0), rows)
    if min(inputs, outputs) < NARROW or inputs * outputs > LARGE or block == rows:
        return x.T @ grad
    blocks = lax.optimization_barrier(jnp.swapaxes(x.reshape(-1, block, inputs), 1, 2))
    return (blocks @ grad.reshape(-1, block, outputs)).sum(0)


# -- (x·W)ᵀ ----------------------------------------------------------------------------------------


def matmul_transposed_reference(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """(x·W)ᵀ, `[B, D]` and `[D, F]` → `[F, B]`."""
    return (x @ kernel).T


@jax.custom_vjp
def matmul_transposed(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """(x·W)ᵀ for few F: operations on the result, and the kernel's gradient, then work on long
    vectors. Precisions are those of `matmul`."""
    return lax.platform_dependent(matmul(x, kernel), cpu=_transpose_on_cpu, default=jnp.transpose)


def _transpose_on_cpu(x: jax.Array) -> jax.Array:
    """A product with the identity. XLA would merge a plain transpose into every operation that
    reads it, and then not vectorise these."""
    if x.shape[1] >= NARROW:
        return lax.optimization_barrier(x).T  # not merged into the product: XLA may not support it
    rows_with_rows = (((1,), (1,)), ((), ()))
    return lax.dot_general(jnp.eye(x.shape[1], dtype=x.dtype), x, rows_with_rows)


def _transposed_gradient(
    kept: tuple[jax.Array, jax.Array], grad: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The barrier makes XLA transpose the small result, not x."""
    x, kernel = kept
    grad = grad.astype(x.dtype)
    of_kernel = jnp.matmul(grad, x, preferred_element_type=kernel.dtype)
    return grad.T @ kernel.astype(x.dtype).T, lax.optimization_barrier(of_kernel).T


matmul_transposed.defvjp(
    lambda x, kernel: (matmul_transposed(x, kernel), (x, kernel)), _transposed_gradient
)
