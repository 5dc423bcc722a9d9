"""Mixed precision. Networks compute in the precision of their inputs, whatever their parameters
have: of inputs in bfloat16 all products are, but sums over many terms (products' own, statistics
of LayerNorm, softmax, states of GRUs) and what is read outside stay in float32. Of inputs in the
parameters' precision nothing is cast at all.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jmarl.choices import Precision


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
    return x @ kernel if x.dtype == kernel.dtype else _mixed(x, kernel)


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
