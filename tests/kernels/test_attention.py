"""Attention all at once, agent after agent and by a table, against softmax(q·kᵀ/√d)·v."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jmarl.kernels.attention import (
    KeyValueCache,
    attend,
    attend_cached,
    attend_reference,
    attend_to_table,
    attend_to_table_reference,
)
from tests.support.optimised import (
    TOLERANCE,
    arrays,
    assert_equals_reference,
    bfloat16,
    float32,
)

F32 = TOLERANCE[jnp.float32]
SHAPES = [((2,), 1, 1, 4), ((3,), 5, 2, 4), ((2, 3), 4, 1, 8)]  # leading axes, N, heads, d


def all_at_once(causal):
    return (lambda q, k, v, f=f: f(q, k, v, causal) for f in (attend, attend_reference))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("leading", "agents", "heads", "size"), SHAPES)
def test_all_at_once(leading, agents, heads, size, causal):
    given = arrays(jnp.float32, *((*leading, agents, heads, size),) * 3)
    assert_equals_reference(*all_at_once(causal), given, (0, 1, 2), F32)


def test_all_at_once_in_bfloat16():
    given = bfloat16(*arrays(jnp.float32, *((4, 5, 2, 8),) * 3))
    tolerance, exact = 2 * TOLERANCE[jnp.bfloat16], float32(*given)
    assert_equals_reference(*all_at_once(True), given, (0, 1, 2), tolerance, exact)


def in_turn(q, k, v):
    """`[E, N, heads, d]`"""
    worlds, agents, heads, size = q.shape
    rep = jnp.zeros((worlds, agents, heads * size), q.dtype)

    def turn(cache, given):
        i, q, k, v = given
        mixed, cache = attend_cached(q, k, v, cache, i)
        return cache, mixed

    rows = (jnp.moveaxis(x, 1, 0) for x in (q, k, v))
    _, mixed = lax.scan(turn, KeyValueCache.empty(rep, heads), (jnp.arange(agents), *rows))
    return jnp.moveaxis(mixed, 0, 1)


@pytest.mark.parametrize(("agents", "heads", "size"), [(1, 1, 4), (5, 2, 4), (7, 1, 8)])
def test_agent_after_agent(agents, heads, size):
    given = arrays(jnp.float32, *((3, agents, heads, size),) * 3)
    _, reference = all_at_once(True)
    assert_equals_reference(in_turn, reference, given, (0, 1, 2), F32)


def chosen(leading, entries):
    """One-hot choices, of which some entries get none and some several."""
    index = np.random.default_rng(1).integers(0, max(entries - 1, 1), leading)
    return jax.nn.one_hot(index, entries)


def by_table(choice, *weights):
    return attend_to_table(choice, jnp.cumsum(choice, axis=-2), *weights)


@pytest.mark.parametrize(
    ("leading", "entries", "heads", "size"), [((2, 1), 1, 1, 4), ((3, 6), 4, 2, 4)]
)
def test_by_a_table(leading, entries, heads, size):
    width = heads * size
    table = arrays(jnp.float32, *((entries, heads, size),) * 3, (width, width), (width,))
    choice = chosen(leading, entries)
    both = (lambda *t, f=f: f(choice, *t) for f in (by_table, attend_to_table_reference))
    assert_equals_reference(*both, table, (0, 1, 2, 3, 4), F32)
