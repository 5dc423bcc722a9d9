"""Which actions are drawn, at the edges of float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from jmarl.envs.spaces import Discrete, MultiDiscrete
from jmarl.policies.action_distributions import make_actions

N = 5
LARGEST = float(np.nextafter(np.float32(1), np.float32(0)))
SMALLEST = float(np.finfo(np.float32).smallest_normal)
noises = st.sampled_from([0.0, SMALLEST, LARGEST]) | st.floats(0, LARGEST, width=32)
logits_of_all = st.lists(st.floats(-300, 300, width=32), min_size=N, max_size=N)
masks = st.lists(st.booleans(), min_size=N, max_size=N)


@jax.jit
def draw(noise, logits, mask):
    return make_actions(Discrete(N)).sample(noise, logits, jnp.ones(()), mask)


def drawn(noise, logits, mask):
    given = (np.float32([[noise]]), np.float32([logits]), np.array([mask]))
    return int(draw(*given)[0])


@settings(deadline=None, max_examples=300)
@example(0.0, [0.0] * N, [False, True, True, True, True])
@example(0.0, [0.0] * N, [False, False, False, False, True])
@example(0.0, [-300.0, 0.0, 0.0, 0.0, 0.0], [True] * N)
@example(LARGEST, [0.0, 0.3, 0.0, 0.0, 0.0], [True, True, True, False, False])
@example(LARGEST, [0.0, 0.0, 0.0, 0.0, -300.0], [True] * N)
@given(noises, logits_of_all, masks)
def test_what_is_illegal_or_has_no_probability_is_never_drawn(noise, logits, mask):
    assume(any(mask))
    chosen = drawn(noise, logits, mask)
    assert 0 <= chosen < N
    assert mask[chosen]
    legal = np.where(mask, np.float64(logits), -np.inf)
    p = np.exp(legal - legal.max())
    p /= p.sum()
    assert p[chosen] > 2.0**-26  # float32 noise comes in steps of 2⁻²³


@pytest.mark.parametrize("noise", [0.0, 1e-9, LARGEST])
def test_the_edges_of_the_noise_draw_the_outermost_likely_actions(noise):
    """p = (e⁻⁴⁰, ½, ½, e⁻⁴⁰, 0): what is next to impossible is not drawn by noise of 0 or of 1 - ε,
    which come up once in 2²³ draws."""
    chosen = drawn(noise, [-40.0, 0.0, 0.0, -40.0, 0.0], [True, True, True, True, False])
    assert chosen == (2 if noise == LARGEST else 1)


@pytest.mark.parametrize("noise", [0.0, LARGEST])
def test_every_head_is_drawn_within_its_legal_choices(noise):
    actions = make_actions(MultiDiscrete((3, 2)))
    mask = np.array([[False, True, False, False, True]])
    given = (np.full((1, 2), noise, np.float32), jnp.zeros((1, 5)), jnp.ones(()), mask)
    assert actions.sample(*given).tolist() == [[1, 1]]


def test_the_noise_decides_by_cumulated_probabilities():
    """p = (0.2, 0.3, 0.5): the edges are 0.2 and 0.5."""
    actions = make_actions(Discrete(3))
    noise = np.float32([0.0, 0.19, 0.21, 0.49, 0.51, 0.999])[:, None]
    logits = jnp.broadcast_to(jnp.log(jnp.array([0.2, 0.3, 0.5])), (6, 3))
    assert actions.sample(noise, logits, jnp.ones(()), None).tolist() == [0, 0, 1, 1, 2, 2]
