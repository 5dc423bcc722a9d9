"""Sums over shards, and which axis counts worlds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.learning.collectives import all_sum, local_sum, world_axis
from jmarl.types import DATA_AXIS


def test_shards_add_up_and_all_know_the_sum():
    rng = np.random.default_rng(0)
    parts = {"grads": rng.normal(size=(4, 3, 2)), "count": rng.normal(size=4)}
    given = jax.tree.map(jnp.asarray, parts)
    ours = jax.vmap(all_sum, axis_name=DATA_AXIS)(given)
    for name, part in parts.items():
        expected = np.broadcast_to(part.sum(0), part.shape)
        np.testing.assert_allclose(ours[name], expected, rtol=1e-5)
    assert local_sum(given) is given


@pytest.mark.parametrize(
    ("few", "many", "axis"),
    [((4, 3), (8, 3), 0), ((4, 4), (4, 8), 1), ((2, 4, 4), (2, 4, 8), 2), ((4,), (4,), None)],
)
def test_the_axis_of_worlds_is_the_one_that_grows(few, many, axis):
    assert world_axis(*(jax.ShapeDtypeStruct(shape, float) for shape in (few, many))) == axis
