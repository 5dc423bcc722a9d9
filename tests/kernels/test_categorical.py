"""Choices on the first axis against the plain functions: scores with gradients, samples, modes."""

import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.kernels.categorical import (
    log_prob_and_entropy,
    log_prob_and_entropy_reference,
    mode,
    mode_reference,
    sample,
    sample_reference,
)
from tests.support.optimised import TOLERANCE, arrays, assert_equals_reference, optimised

# leading axes; how many entries each choice has; whether some are illegal
CASES = [
    ((1,), (1,), False),
    ((40, 3), (5,), False),
    ((40, 3), (5,), True),
    ((7,), (3, 10, 2), False),  # 10 are reduced by a loop, not unrolled
    ((2, 3, 4), (3, 2), True),
]


def rows(leading, heads, masked, dtype=jnp.float32):
    """Logits, mask, actions and noise."""
    rng = np.random.default_rng(0)
    logits = 2 * arrays(dtype, (*leading, sum(heads)))[0]
    mask = jnp.asarray(rng.random(logits.shape) > 0.4) if masked else None
    action = np.stack([rng.integers(0, n, leading) for n in heads], axis=-1)
    noise = rng.random((*leading, len(heads)))
    return logits, mask, jnp.asarray(action), jnp.asarray(noise, dtype)


@pytest.mark.parametrize(("leading", "heads", "masked"), CASES)
def test_scores(leading, heads, masked):
    """Masked rows take legal actions: illegal ones' log-probabilities, -1e10, dwarf the others."""
    dtype = jnp.float32
    logits, mask, action, _ = rows(leading, heads, masked, dtype)
    if masked:
        action = mode(logits, mask, heads)

    def both(score):
        return lambda logits: score(logits, mask, action, heads)

    kernel, reference = both(log_prob_and_entropy), both(log_prob_and_entropy_reference)
    assert_equals_reference(kernel, reference, (logits,), (0,), TOLERANCE[dtype])


@pytest.mark.parametrize(("leading", "heads", "masked"), CASES)
def test_samples_and_modes(leading, heads, masked, x64):
    """The same choices, number by number; double precision keeps noise away from the edges."""
    logits, mask, _, noise = rows(leading, heads, masked, jnp.float64)
    for kernel, reference in ((sample, sample_reference), (mode, mode_reference)):
        given = (noise, logits) if kernel is sample else (logits,)
        ours, theirs = (
            optimised(lambda *given, f=f: f(*given, mask, heads), *given)
            for f in (kernel, reference)
        )
        assert ours.shape == (*leading, len(heads))
        np.testing.assert_array_equal(ours, theirs)
