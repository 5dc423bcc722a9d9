"""Sums over parts equal sums over the whole, worked out by numpy."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.devices import make_mesh
from jmarl.networks.precision import outer_sum
from jmarl.parts import WHOLE, Parts, fewest_pieces, sum_of_parts


class Rows(SimpleNamespace):
    """A batch is any tree that has `active`."""


jax.tree_util.register_pytree_node(
    Rows, lambda rows: ((rows.active, rows.x), None), lambda _, xs: Rows(active=xs[0], x=xs[1])
)


def batch(*leading):
    rng = np.random.default_rng(0)
    shape = (*leading, 6, 4, 3)
    return Rows(active=jnp.asarray(rng.random(shape)), x=jnp.asarray(rng.normal(size=(*shape, 2))))


def weighted(part, factor):
    return {"sum": factor * (part.x * part.active[..., None]).sum((0, 1, 2)), "first": part.x.sum()}


@pytest.mark.parametrize("pieces", [1, 2, 3, 6])
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("mesh", [False, True])
def test_parts_add_up_to_the_whole(pieces, shards, mesh, x64):
    given = batch(shards) if shards > 1 else batch()
    x, active = np.asarray(given.x), np.asarray(given.active)
    expected = 2.0 * (x * active[..., None]).reshape(-1, 2).sum(0)
    where = make_mesh(jax.devices()[:1]) if mesh else None
    parts = Parts(pieces, shards, where)
    ours = jax.jit(lambda given: sum_of_parts(weighted, parts, given, jnp.asarray(2.0)))(given)
    np.testing.assert_allclose(ours["sum"], expected, rtol=1e-12)
    np.testing.assert_allclose(ours["first"], x.sum(), rtol=1e-12)


def test_no_part_sees_more_than_its_piece():
    seen = []

    def note(part):
        seen.append(part.active.shape)
        return part.active.sum()

    sum_of_parts(note, Parts(pieces=3), batch())
    assert set(seen) == {(2, 4, 3)}
    seen.clear()
    sum_of_parts(note, WHOLE, batch())
    assert seen == [(6, 4, 3)]


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
    assert fewest_pieces(length, rows, limit) == pieces


@pytest.mark.parametrize("columns", [(64, 64), (64, 5), (6, 64), (64, 1), (18, 64)])
@pytest.mark.parametrize("rows", [7, 130, 2048, 2003])
def test_gradients_of_kernels_are_sums_of_outer_products(rows, columns, x64):
    rng = np.random.default_rng(1)
    x, g = (rng.normal(size=(rows, n)) for n in columns)
    np.testing.assert_allclose(outer_sum(x, g), np.einsum("bi,bo->io", x, g), atol=1e-10)
