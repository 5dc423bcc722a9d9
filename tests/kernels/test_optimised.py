"""The comparisons of this directory run optimised programs, though the suite's own are not."""

import numpy as np

from tests.support.optimised import optimised


def test_the_optimiser_is_on():
    """It makes x·y - z one operation, which does not round the product: with z = x·y, rounded, what
    remains is the rounding error, and not 0."""
    x, y = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
    assert (optimised(lambda x, y, z: x * y - z, x, y, x * y) != 0).any()
