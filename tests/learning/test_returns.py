"""Advantages and returns against loops in numpy, and numbers worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.learning.returns import gae, monte_carlo
from tests.support import torch_core

T, E, N = 9, 5, 2


def random_play(seed):
    rng = np.random.default_rng(seed)
    reward, value, next_value = (rng.normal(size=(T, E, N)) for _ in range(3))
    terminated, truncated = rng.random((T, E, N)) < 0.2, rng.random((T, E)) < 0.2
    assert (terminated & truncated[..., None]).any()
    assert (terminated.any(-1) & ~terminated.all(-1)).any()  # agents end one by one
    return reward, value, next_value, terminated, truncated


@pytest.mark.parametrize("time_limit", ["bootstrap", "terminal", "zero_gae"])
def test_gae_equals_the_loop(time_limit, x64):
    reward, value, next_value, terminated, truncated = random_play(0)
    args = (reward, value, next_value, terminated, truncated)
    ours = jax.jit(lambda *a: gae(*a, 0.97, 0.9, time_limit))(*map(jnp.asarray, args))
    for mine, theirs in zip(ours, torch_core.gae_loop(*args, 0.97, 0.9, time_limit), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)


def test_monte_carlo_equals_the_loop(x64):
    reward, value, next_value, terminated, truncated = random_play(1)
    play = (reward, value, next_value, terminated, truncated)
    ours = monte_carlo(*map(jnp.asarray, play), 0.97)
    theirs = torch_core.monte_carlo_loop(reward, next_value, terminated, truncated, 0.97)
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("time_limit", ["bootstrap", "terminal", "zero_gae"])
def test_monte_carlo_is_the_loop_of_gae_with_lambda_1(time_limit, x64):
    """Rewards then add up to the end, whatever was expected on the way."""
    reward, value, next_value, terminated, truncated = random_play(2)
    going_on = ~truncated[:-1, :, None]
    next_value[:-1] = np.where(going_on, value[1:], next_value[:-1])  # as in a rollout
    play = (reward, value, next_value, terminated, truncated)
    ours = monte_carlo(*map(jnp.asarray, play), 0.97, time_limit)
    theirs = torch_core.gae_loop(*play, 0.97, 1.0, time_limit)[1]
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize(
    ("time_limit", "expected"),
    [
        # one world, three steps, γ = ½, the second cut by a time limit:
        # R_2 = 1 + ½·4 = 3;  R_1 = 1 + ½·6 = 4;  R_0 = 1 + ½·4 = 3
        ("bootstrap", [3.0, 4.0, 3.0]),
        # the cut counts as an end: R_1 = 1, R_0 = 1 + ½·1
        ("terminal", [1.5, 1.0, 3.0]),
        # also R_1 = V_1 = 2, so that the cut step teaches nothing; R_0 = 1 + ½·2
        ("zero_gae", [2.0, 2.0, 3.0]),
    ],
)
def test_time_limits_of_monte_carlo_by_hand(time_limit, expected):
    one = lambda *x: jnp.array(x).reshape(3, 1, 1)  # noqa: E731
    target = monte_carlo(
        one(1.0, 1.0, 1.0),
        one(2.0, 2.0, 2.0),
        one(2.0, 6.0, 4.0),
        jnp.zeros((3, 1, 1), bool),
        jnp.array([[False], [True], [False]]),
        0.5,
        time_limit,
    )
    np.testing.assert_allclose(target.ravel(), expected)


@pytest.mark.parametrize(
    ("time_limit", "expected"),
    [
        # one world, two steps, γ = λ = ½, the first step cut by a time limit:
        # δ_0 = 1 + ½·6 - 2 = 2, nothing follows; δ_1 = 1 + ½·4 - 2 = 1
        ("bootstrap", [2.0, 1.0]),
        # the cut counts as an end: δ_0 = 1 - 2 = -1
        ("terminal", [-1.0, 1.0]),
        ("zero_gae", [0.0, 1.0]),
    ],
)
def test_time_limits_by_hand(time_limit, expected):
    one = lambda *x: jnp.array(x).reshape(2, 1, 1)  # noqa: E731
    advantage, target = gae(
        one(1.0, 1.0),
        one(2.0, 2.0),
        one(6.0, 4.0),
        jnp.zeros((2, 1, 1), bool),
        jnp.array([[True], [False]]),
        0.5,
        0.5,
        time_limit,
    )
    np.testing.assert_allclose(advantage.ravel(), expected)
    np.testing.assert_allclose(target.ravel(), np.array(expected) + 2)
