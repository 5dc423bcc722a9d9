"""Linear layers against x·W + b over any leading axes, with gradients."""

import jax.numpy as jnp
import pytest

from jmarl.kernels.linear import (
    affine,
    affine_last,
    affine_reference,
    fold_scale,
    fold_scale_reference,
    fused_affine,
    fused_affine_reference,
)
from tests.support.optimised import (
    TOLERANCE,
    arrays,
    assert_equals_reference,
    bfloat16,
    float32,
)

F32 = TOLERANCE[jnp.float32]


@pytest.mark.parametrize("layer", [affine, affine_last])
@pytest.mark.parametrize(
    ("leading", "inputs", "outputs"), [((), 3, 1), ((128, 3), 16, 24), ((2, 0, 3), 4, 2)]
)
def test_layers(layer, leading, inputs, outputs):
    given = arrays(jnp.float32, (*leading, inputs), (inputs, outputs), (outputs,))
    assert_equals_reference(layer, affine_reference, given, (0, 1, 2), F32)


def test_a_layer_without_bias():
    x, kernel = arrays(jnp.float32, (6, 3, 4), (4, 5))
    layers = (lambda x, kernel, f=f: f(x, kernel, None) for f in (affine, affine_reference))
    assert_equals_reference(*layers, (x, kernel), (0, 1), F32)


@pytest.mark.parametrize(("layer", "dtype"), [(affine, jnp.bfloat16), (affine_last, jnp.float32)])
def test_layers_of_bfloat16(layer, dtype):
    """The last layer's outputs keep all their bits."""
    x, *weights = bfloat16(*arrays(jnp.float32, (9, 2, 8), (8, 5), (5,)))
    given = (x, *float32(*weights))
    assert layer(*given).dtype == dtype
    exact = float32(*given)
    assert_equals_reference(
        layer, affine_reference, given, (0, 1, 2), TOLERANCE[jnp.bfloat16], exact
    )


def test_layers_side_by_side():
    """Three of different widths."""
    widths = (4, 1, 7)
    given = arrays(jnp.float32, (10, 3, 6), *((6, n) for n in widths), *((n,) for n in widths))
    both = (lambda x, *w, f=f: f(x, w[:3], w[3:]) for f in (fused_affine, fused_affine_reference))
    assert_equals_reference(*both, given, tuple(range(7)), F32)


@pytest.mark.parametrize(("leading", "inputs", "outputs"), [((5,), 8, 3), ((64, 6), 18, 16)])
def test_a_norms_scale_in_the_layer_that_reads_it(leading, inputs, outputs):
    sizes = ((*leading, inputs), (inputs,), (inputs,), (inputs, outputs), (outputs,))

    def folded(y, scale, shift, kernel, bias):
        return affine(y, *fold_scale(scale, shift, kernel, bias))

    given = arrays(jnp.float32, *sizes)
    assert_equals_reference(folded, fold_scale_reference, given, (0, 1, 2, 3, 4), F32)
