"""Standardised rows against (x - mean)/√(var + ε), with gradients."""

import jax.numpy as jnp
import pytest

from jmarl.kernels.layer_norm import standardise, standardise_reference
from tests.support.optimised import TOLERANCE, arrays, assert_equals_reference


@pytest.mark.parametrize("shape", [(1, 3), (7, 18), (5, 3, 64)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_rows(shape, dtype, x64):
    (x,) = arrays(dtype, shape)
    given = (2 + 3 * x,)
    assert_equals_reference(standardise, standardise_reference, given, (0,), 3 * TOLERANCE[dtype])


def test_rows_that_hardly_vary(x64):
    """A variance next to ε, and none at all: there the gradient is g - mean(g), over √ε."""
    (x,) = arrays(jnp.float64, (4, 6))
    given = (x * jnp.array([0.0, 1e-6, 3e-3, 1.0])[:, None] + 5,)
    assert_equals_reference(standardise, standardise_reference, given, (0,), 1e-9)
