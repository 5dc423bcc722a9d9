"""log Γ, ψ and Gamma variates against jax's and scipy's."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jmarl.kernels.gamma import (
    digamma,
    digamma_reference,
    gamma_variate,
    gamma_variate_reference,
    log_gamma,
    log_gamma_reference,
)
from tests.support.optimised import TOLERANCE, assert_close, assert_equals_reference, optimised

PAIRS = {
    "log_gamma": (log_gamma, log_gamma_reference, scipy.special.gammaln),
    "digamma": (digamma, digamma_reference, scipy.special.digamma),
}
RANGES = {"next to 1": (1.0, 3.0), "large": (3.0, 2000.0)}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("where", RANGES)
def test_values_and_slopes(name, where, x64):
    """To 1e-11 of the largest. Jax's own slope of ψ is as precise."""
    kernel, reference, exact = PAIRS[name]
    z = jnp.linspace(*RANGES[where], 501)
    assert_equals_reference(kernel, reference, (z,), (0,), 1e-11)
    assert_close(optimised(kernel, z), exact(np.asarray(z)), 1e-12)


@pytest.mark.parametrize("name", PAIRS)
def test_values_and_slopes_in_single_precision(name):
    kernel, reference, _ = PAIRS[name]
    z = jnp.linspace(1.0, 200.0, 501)
    assert_equals_reference(kernel, reference, (z,), (0,), TOLERANCE[jnp.float32])


@pytest.mark.parametrize("alpha", [1.0, 1.5, 40.0])
def test_variates(alpha, x64):
    """From the same proposals the same numbers; of 4,000 some reject one, some two proposals."""
    rng = np.random.default_rng(0)
    numbers = [(rng.normal(size=4000), rng.exponential(size=4000)) for _ in range(3)]

    def both(variate):
        return lambda alpha: variate(alpha, [tuple(map(jnp.asarray, pair)) for pair in numbers])

    given = (jnp.full(4000, alpha),)
    assert_equals_reference(
        both(gamma_variate), both(gamma_variate_reference), given, (0,), TOLERANCE[jnp.float64]
    )
