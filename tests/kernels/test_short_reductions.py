"""Short reductions against the plain ones, around the length where they change over."""

import jax.numpy as jnp
import pytest

from jmarl.kernels import short_reductions as kernels
from jmarl.kernels.short_reductions import UNROLL_LIMIT
from tests.support.optimised import TOLERANCE, arrays, assert_equals_reference

LENGTHS = (1, UNROLL_LIMIT, UNROLL_LIMIT + 1)
SUMS = ("short_sum", "short_min", "short_max")


@pytest.mark.parametrize("length", LENGTHS)
def test_reductions(length):
    kernel, reference = (
        lambda x, end=end: [getattr(kernels, name + end)(x) for name in SUMS]
        for end in ("", "_reference")
    )
    x = arrays(jnp.float32, (length, 3, 7))
    assert_equals_reference(kernel, reference, x, (0,), TOLERANCE[jnp.float32])


@pytest.mark.parametrize("length", LENGTHS)
def test_folds(length):
    """h ← tanh(h·a + b): the order of steps matters."""
    start, xs = arrays(jnp.float32, (5,), (length, 2, 5))

    def step(h, x):
        return jnp.tanh(h * x["a"] + x["b"])

    def fold(reduce):
        return lambda start, xs: reduce(step, start, {"a": xs[:, 0], "b": xs[:, 1]})

    kernel, reference = fold(kernels.reduce_unrolled), fold(kernels.reduce_unrolled_reference)
    assert_equals_reference(kernel, reference, (start, xs), (0, 1), TOLERANCE[jnp.float32])
