"""Programs compiled as jmarl ships them, with XLA's optimiser; `tests/conftest.py` turns it off."""

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.execution.compiler import fast_options, set_by_user

SHIPPED = {"xla_backend_optimization_level": "3", "xla_cpu_use_fusion_emitters": True}  # defaults
# of the largest number: some roundings, and far below any wrong term
TOLERANCE = {jnp.float64: 1e-12, jnp.float32: 1e-5, jnp.bfloat16: 2.0**-6}


def shipped_options():
    """XLA's optimiser on, and the options of programs that run for long."""
    return {name: value for name, value in SHIPPED.items() if set_by_user(name)} | fast_options()


def optimised(compute, *arguments):
    """compute(*arguments), by an optimised program."""
    return jax.jit(compute).lower(*arguments).compile(shipped_options())(*arguments)


def arrays(dtype, *shapes, seed=0):
    """Normal numbers."""
    rng = np.random.default_rng(seed)
    return tuple(jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes)


def with_gradients(compute, wrt):
    """compute's results, and the gradients of Σ weights·results by the arguments `wrt`. Weights are
    random, so that errors do not cancel."""

    def weighted(*arguments):
        results, total = compute(*arguments), 0.0
        for i, result in enumerate(jax.tree.leaves(results)):
            weights = np.random.default_rng(100 + i).normal(size=result.shape)
            weights = jnp.asarray(weights, result.dtype).astype(float)
            total = total + (result.astype(float) * weights).sum()
        return total, results

    def both(*arguments):
        gradients, results = jax.grad(weighted, wrt, has_aux=True)(*arguments)
        return results, gradients

    return both


def assert_close(ours, theirs, tolerance):
    """Leaf by leaf, within `tolerance` of the leaf's largest number."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert one.shape == other.shape
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        size = np.abs(other).max(initial=0)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * size)


def assert_equals_reference(kernel, reference, arguments, wrt, tolerance, exact=None):
    """Values, and gradients by the arguments `wrt`, of optimised programs. The reference gets the
    arguments `exact`, where they differ: the same numbers in a higher precision."""
    if wrt:
        kernel, reference = with_gradients(kernel, wrt), with_gradients(reference, wrt)
    ours = optimised(kernel, *arguments)
    assert_close(ours, optimised(reference, *(exact or arguments)), tolerance)


def float32(*arguments):
    return tuple(jnp.asarray(x, jnp.float32) for x in arguments)


def bfloat16(*arguments):
    return tuple(jnp.asarray(x, jnp.bfloat16) for x in arguments)
