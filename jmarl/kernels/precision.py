"""Sums over many terms are made in at least float32, whatever the precision of their terms."""

from typing import Any

import jax
import jax.numpy as jnp


def at_least_float32(x: jax.Array) -> jax.Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def softmax(scores: jax.Array, dtype: Any) -> jax.Array:
    """exp(z)/Σ exp(z) over the last axis, computed in at least float32 and returned in `dtype`."""
    return jax.nn.softmax(at_least_float32(scores), axis=-1).astype(dtype)
