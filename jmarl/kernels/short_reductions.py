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


def reduce_unrolled_reference(step: Callable[[Any, Any], Any], initial: Any, xs: Any) -> Any:
    """step(… step(step(initial, xs[0]), xs[1]) …)."""
    length = jax.tree.leaves(xs)[0].shape[0]
    rows = (jax.tree.map(lambda x, i=i: x[i], xs) for i in range(length))
    return functools.reduce(step, rows, initial)


def reduce_unrolled(step: Callable[[Any, Any], Any], initial: Any, xs: Any) -> Any:
    """The same: unrolled if short, a loop if long."""
    length = jax.tree.leaves(xs)[0].shape[0]
    if length > UNROLL_LIMIT:
        return lax.scan(lambda carry, x: (step(carry, x), None), initial, xs)[0]
    for i in range(length):
        initial = step(initial, jax.tree.map(lambda x, i=i: x[i], xs))
    return initial


def short_sum_reference(x: jax.Array) -> jax.Array:
    """Σ over the first axis."""
    return x.sum(0)


def short_sum(x: jax.Array) -> jax.Array:
    return functools.reduce(operator.add, list(x)) if len(x) <= UNROLL_LIMIT else x.sum(0)


def short_min_reference(x: jax.Array) -> jax.Array:
    """min over the first axis."""
    return x.min(0)


def short_min(x: jax.Array) -> jax.Array:
    return functools.reduce(jnp.minimum, list(x)) if len(x) <= UNROLL_LIMIT else x.min(0)


def short_max_reference(x: jax.Array) -> jax.Array:
    """max over the first axis."""
    return x.max(0)


def short_max(x: jax.Array) -> jax.Array:
    return functools.reduce(jnp.maximum, list(x)) if len(x) <= UNROLL_LIMIT else x.max(0)
