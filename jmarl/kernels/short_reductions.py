"""Reductions over a short first axis, as chains of elementwise operations on long vectors. XLA for
CPUs vectorises those, but not a reduction over a short axis."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

UNROLL_LIMIT = 8  # longer ones are loops or reductions, so that programs stay small


def fold(step: Callable[[Any, Any], Any], initial: Any, xs: Any) -> Any:
    """step(… step(step(initial, xs[0]), xs[1]) …): unrolled if short, a loop if long."""
    length = jax.tree.leaves(xs)[0].shape[0]
    if length > UNROLL_LIMIT:
        return lax.scan(lambda carry, x: (step(carry, x), None), initial, xs)[0]
    for i in range(length):
        initial = step(initial, jax.tree.map(lambda x, i=i: x[i], xs))
    return initial


def total(x: jax.Array) -> jax.Array:
    """Σ over the first axis."""
    return functools.reduce(operator.add, list(x)) if len(x) <= UNROLL_LIMIT else x.sum(0)


def least(x: jax.Array) -> jax.Array:
    """min over the first axis."""
    return functools.reduce(jnp.minimum, list(x)) if len(x) <= UNROLL_LIMIT else x.min(0)


def greatest(x: jax.Array) -> jax.Array:
    """max over the first axis."""
    return functools.reduce(jnp.maximum, list(x)) if len(x) <= UNROLL_LIMIT else x.max(0)
