"""Sums over pieces equal sums over the whole, worked out by numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.learning.microbatches import num_microbatches, sum_over_microbatches


def weighted(part):
    """Of rows with weights."""
    x, weight = part
    return {"sum": (x * weight[..., None]).sum((0, 1)), "first": x.sum()}


@pytest.mark.parametrize("pieces", [1, 2, 3, 6])
def test_pieces_add_up_to_the_whole(pieces, x64):
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(12, 3, 2)), rng.random((12, 3))
    cut = [jnp.asarray(given).reshape(pieces, -1, *given.shape[1:]) for given in (x, weight)]
    ours = jax.jit(lambda cut: sum_over_microbatches(weighted, cut))(cut)
    np.testing.assert_allclose(ours["sum"], np.einsum("rnk,rn->k", x, weight), rtol=1e-12)
    np.testing.assert_allclose(ours["first"], x.sum(), rtol=1e-12)


def test_no_more_than_a_piece_is_seen_at_once():
    seen = []

    def note(part):
        seen.append(part.shape)
        return part.sum()

    sum_over_microbatches(note, jnp.ones((3, 2, 4)))
    assert set(seen) == {(2, 4)}


@pytest.mark.parametrize(
    ("length", "rows", "limit", "pieces"),
    [
        (25, 9600, 12288, 1),  # fits as it is
        (25, 38400, 12288, 5),  # fours would do, but 4 does not divide 25
        (128, 98304, 12288, 8),
        (7, 98304, 12, 7),  # no more than one step each
        (128, 98304, None, 1),
    ],
)
def test_as_few_pieces_as_fit(length, rows, limit, pieces):
    assert num_microbatches(length, rows, limit) == pieces
