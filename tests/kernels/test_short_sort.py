"""Sorted rows against a real sort, around the number of rows where they change over."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.kernels.short_reductions import UNROLL_LIMIT
from jmarl.kernels.short_sort import smallest_rows, smallest_rows_reference
from tests.support.optimised import TOLERANCE, arrays, assert_equals_reference


@pytest.mark.parametrize(
    ("size", "count"), [(1, 1), (3, 2), (UNROLL_LIMIT, UNROLL_LIMIT), (UNROLL_LIMIT + 1, 4)]
)
def test_smallest_rows(size, count):
    key, rows = arrays(jnp.float32, (3, size, 7), (size, 2, 7))
    key = jnp.abs(key).at[0].set(1.0)  # of equal keys the first row comes first

    def sort(kernel):
        return lambda rows: kernel(key, rows, count)

    tolerance = TOLERANCE[jnp.float32]
    kernel, reference = sort(smallest_rows), sort(smallest_rows_reference)
    assert_equals_reference(kernel, reference, (rows,), (0,), tolerance)
    order = np.argsort(np.asarray(key), axis=1, kind="stable")[:, :count]
    expected = np.take_along_axis(np.asarray(rows)[None], order[:, :, None], axis=1)
    np.testing.assert_array_equal(jax.jit(kernel)(rows), expected)


def test_a_broken_world_breaks_no_other():
    key, rows = arrays(jnp.float32, (2, 3, 4), (3, 1, 4))
    key = jnp.abs(key)
    broken = smallest_rows(key.at[:, :, 0].set(jnp.nan), rows, 3)
    np.testing.assert_array_equal(broken[..., 1:], smallest_rows(key, rows, 3)[..., 1:])
