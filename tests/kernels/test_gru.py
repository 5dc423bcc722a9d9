"""A GRU along a sequence against the plain scan, whose gradients are derived."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.kernels.gru import gru_gates, gru_states, gru_states_reference
from tests.support.optimised import (
    TOLERANCE,
    arrays,
    assert_close,
    assert_equals_reference,
    bfloat16,
    float32,
    optimised,
)


def given(dtype, length, rows, width, seed=0):
    sizes = ((length, rows, 3 * width), (rows, width), (width, 3 * width), (3 * width,))
    inputs, start, kernel, bias = arrays(dtype, *sizes, seed=seed)
    kept = np.random.default_rng(1).random((length, rows)) > 0.3
    return inputs, jnp.asarray(kept, dtype), start, 0.5 * kernel, bias


@pytest.mark.parametrize(
    ("length", "rows", "width", "dtype"),
    [
        (1, 1, 1, jnp.float32),
        (5, 3, 4, jnp.float64),
        (3, 128, 16, jnp.float32),  # two blocks of rows
    ],
)
def test_states(length, rows, width, dtype, x64):
    """Gradients by inputs, start, kernel and bias; where episodes begin is not differentiated."""
    arguments = given(dtype, length, rows, width)
    assert_equals_reference(
        gru_states, gru_states_reference, arguments, (0, 2, 3, 4), 10 * TOLERANCE[dtype]
    )


def test_states_of_bfloat16_inputs():
    """The state stays in float32; its product with U is in bfloat16."""
    inputs, kept, start, kernel, bias = given(jnp.float32, 5, 4, 8)
    (inputs,) = bfloat16(inputs)
    kernel, bias = float32(*bfloat16(kernel, bias))
    arguments = (inputs, kept, start, kernel, bias)
    assert gru_states(*arguments).dtype == jnp.float32
    tolerance = 2 * TOLERANCE[jnp.bfloat16]
    assert_equals_reference(
        gru_states, gru_states_reference, arguments, (0, 2, 3, 4), tolerance, float32(*arguments)
    )


def test_a_single_step():
    """One after the other they are the whole."""
    inputs, _, start, kernel, bias = given(jnp.float32, 4, 3, 5)

    def steps(inputs, start):
        states = [start]
        for x in inputs:
            states.append(gru_gates(states[-1], x, kernel, bias).next(states[-1]))
        return jnp.stack(states[1:])

    theirs = optimised(gru_states_reference, inputs, jnp.ones((4, 3)), start, kernel, bias)
    assert_close(jax.jit(steps)(inputs, start), theirs, TOLERANCE[jnp.float32])
