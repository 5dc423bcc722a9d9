"""Rows by a product with one-hot rows, against a gather: the same numbers, and gradients."""

import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.kernels.permutation import unpermute, unpermute_reference
from tests.support.optimised import arrays, assert_equals_reference


@pytest.mark.parametrize("shape", [(1, 1), (4, 3, 1), (2, 3, 7, 5)])
def test_rows(shape):
    order = np.random.default_rng(1).permuted(
        np.broadcast_to(np.arange(shape[-2]), shape[:-1]), axis=-1
    )
    both = (lambda x, f=f: f(jnp.asarray(order), x) for f in (unpermute, unpermute_reference))
    assert_equals_reference(*both, arrays(jnp.float32, shape), (0,), tolerance=0.0)
