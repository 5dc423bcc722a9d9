"""Products against x @ W, with gradients; blocks of rows where they apply and where they do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.kernels.matmul import (
    kernel_gradient,
    kernel_gradient_reference,
    matmul,
    matmul_reference,
    matmul_transposed,
    matmul_transposed_reference,
)
from tests.support.optimised import (
    TOLERANCE,
    arrays,
    assert_equals_reference,
    bfloat16,
    float32,
)

PAIRS = {
    "matmul": (matmul, matmul_reference),
    "transposed": (matmul_transposed, matmul_transposed_reference),
}
ROUNDOFF = 2.0**-8  # bfloat16 has 8 significant bits: next to 1, halfway to a neighbour


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"),
    [
        (1, 3, 1),
        (7, 64, 5),
        (2 * 192, 16, 16),  # two blocks
        (5 * 130, 64, 24),  # five
        (2003, 18, 64),  # a prime number of rows: no blocks
    ],
)
def test_products(name, rows, inputs, outputs):
    given = arrays(jnp.float32, (rows, inputs), (inputs, outputs))
    assert_equals_reference(*PAIRS[name], given, (0, 1), TOLERANCE[jnp.float32])


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(7, 8, 1), (384, 16, 24)])
def test_products_of_bfloat16(name, rows, inputs, outputs):
    """Rows are in bfloat16, kernels in float32 with numbers that bfloat16 has."""
    rounded = bfloat16(*arrays(jnp.float32, (rows, inputs), (inputs, outputs)))
    given, exact = (rounded[0], rounded[1].astype(jnp.float32)), float32(*rounded)
    assert_equals_reference(*PAIRS[name], given, (0, 1), TOLERANCE[jnp.bfloat16], exact)


@pytest.mark.parametrize(
    ("rows", "outputs"), [(7, 64), (130, 5), (384, 64), (768, 256), (2003, 64)]
)
def test_gradients_of_kernels_in_double_precision(rows, outputs, x64):
    given = arrays(jnp.float64, (rows, 64), (rows, outputs))
    assert_equals_reference(
        kernel_gradient, kernel_gradient_reference, given, (), TOLERANCE[jnp.float64]
    )


def test_a_product_rounds_its_factors_and_nothing_else():
    """Against the same of rounded factors in float32; the gradient of x is rounded once more. The
    kernel's is a sum over 512 rows, whose bits are all kept."""
    x, kernel, grad = arrays(jnp.float32, (512, 16), (16, 8), (512, 8))

    def rounded(x):
        return x.astype(jnp.bfloat16).astype(jnp.float32)

    exact, exact_back = jax.vjp(matmul_reference, rounded(x), rounded(kernel))
    given, back = jax.vjp(matmul, x.astype(jnp.bfloat16), kernel)
    np.testing.assert_allclose(given, exact, rtol=1e-5, atol=1e-5)
    (of_x, of_kernel), (exact_x, exact_kernel) = back(grad), exact_back(rounded(grad))
    assert (of_x.dtype, of_kernel.dtype) == (jnp.bfloat16, jnp.float32)
    np.testing.assert_allclose(of_kernel, exact_kernel, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(of_x.astype(jnp.float32), exact_x, rtol=ROUNDOFF, atol=1e-5)
