"""Assignments against all permutations and against scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from jmarl.kernels.assignment import (
    SUBSETS_LIMIT,
    assigned_costs,
    assigned_costs_reference,
)
from tests.support.optimised import TOLERANCE, arrays, assert_equals_reference


@pytest.mark.parametrize("agents", [1, 4])
def test_costs_and_gradients_are_those_of_the_best_permutation(agents):
    (cost,) = arrays(jnp.float32, (agents, agents, 5))
    pair = (assigned_costs, assigned_costs_reference)
    assert_equals_reference(*pair, (cost,), (0,), TOLERANCE[jnp.float32])


@pytest.mark.parametrize("agents", [SUBSETS_LIMIT, SUBSETS_LIMIT + 1, 12])
def test_sums_are_the_least(agents):
    cost = np.random.default_rng(agents).uniform(size=(agents, agents, 20)).astype(np.float32)
    chosen, gradient = jax.jit(
        lambda cost: (assigned_costs(cost), jax.grad(lambda c: assigned_costs(c).sum())(cost))
    )(cost)
    for world in range(20):
        rows, places = linear_sum_assignment(cost[..., world])
        np.testing.assert_allclose(chosen[:, world], cost[rows, places, world], rtol=1e-6)
        np.testing.assert_array_equal(gradient[..., world], np.eye(agents)[places])
