"""GELU and its slope against x·Φ(x)."""

import jax.numpy as jnp
import pytest

from jmarl.kernels.gelu import gelu, gelu_reference
from tests.support.optimised import TOLERANCE, assert_equals_reference


@pytest.mark.parametrize("reach", [3.0, 40.0])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_values_and_slopes(dtype, reach, x64):
    """Also far outside, where Φ is 0 or 1 and φ is 0."""
    x = (jnp.linspace(-reach, reach, 401, dtype=dtype),)
    assert_equals_reference(gelu, gelu_reference, x, (0,), TOLERANCE[dtype])
