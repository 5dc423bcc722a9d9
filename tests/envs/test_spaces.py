"""Spaces and their padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.envs import spaces
from jmarl.envs.spaces import Box, Discrete, MultiDiscrete


def test_cover_of_like_spaces_is_the_widest():
    assert spaces.cover([Discrete(3), Discrete(5)]) == Discrete(5)
    assert spaces.cover([Box.uniform(0, 1, 3), Box.uniform(0, 1, 5)]) == Box.uniform(0, 1, 5)


def test_cover_gives_missing_heads_one_choice():
    assert spaces.cover([Discrete(5), MultiDiscrete((4, 7))]) == MultiDiscrete((5, 7))


def test_cover_refuses_to_mix_kinds():
    with pytest.raises(TypeError, match="cannot share"):
        spaces.cover([Discrete(5), Box.uniform(0, 1, 5)])


def test_masks_mark_what_is_an_agents_own():
    padded = MultiDiscrete((5, 3))
    np.testing.assert_array_equal(spaces.mask(MultiDiscrete((5, 3)), padded), [True] * 8)
    # three moves of five; no second head, so only its entry 0 is legal
    own = [True, True, True, False, False, True, False, False]
    np.testing.assert_array_equal(spaces.mask(Discrete(3), padded), own)
    box = spaces.mask(Box.uniform(0, 1, 2), Box.uniform(0, 1, 3))
    np.testing.assert_array_equal(box, [True, True, False])


def test_entries_and_actions_of_a_smaller_space_are_found_in_the_padded_one():
    padded = MultiDiscrete((5, 3))
    np.testing.assert_array_equal(spaces.entries(MultiDiscrete((4, 2)), padded), [0, 1, 2, 3, 5, 6])
    np.testing.assert_array_equal(spaces.entries(Discrete(3), padded), [0, 1, 2])
    np.testing.assert_array_equal(
        spaces.entries(Box.uniform(0, 1, 2), Box.uniform(0, 1, 3)), [0, 1]
    )
    action = jnp.array([[2, 4]])
    np.testing.assert_array_equal(spaces.pad(action, Discrete(5), Discrete(7)), action)
    np.testing.assert_array_equal(spaces.pad(action, Discrete(5), padded), [[[2, 0], [4, 0]]])
    point, wide = jnp.array([[0.5, 0.25]]), Box.uniform(0, 1, 3)
    np.testing.assert_array_equal(spaces.pad(point, Box.uniform(0, 1, 2), wide), [[0.5, 0.25, 0]])


def test_discrete_samples_are_uniform():
    drawn = Discrete(5).sample(jax.random.key(0), (50_000,))
    assert drawn.dtype == np.int32
    share = np.bincount(drawn, minlength=5) / drawn.size
    # five standard deviations of a share of 1/5 in 50,000 draws are 0.009
    np.testing.assert_allclose(share, 0.2, atol=0.009)


def test_multidiscrete_samples_stay_within_each_head():
    drawn = np.asarray(MultiDiscrete((5, 2)).sample(jax.random.key(0), (1000, 3)))
    assert drawn.shape == (1000, 3, 2)
    assert set(drawn[..., 0].ravel()) == set(range(5))
    assert set(drawn[..., 1].ravel()) == {0, 1}


def test_boxes_scale_from_the_unit_interval_and_back():
    box = Box((-2.0, 0.0), (2.0, 0.5))
    x = jnp.array([[0.0, 0.0], [0.25, 0.5], [1.0, 1.0]])
    action = jnp.array([[-2, 0], [-1, 0.25], [2, 0.5]])
    np.testing.assert_allclose(box.from_unit(x), action)
    np.testing.assert_allclose(box.to_unit(action), x)
    np.testing.assert_allclose(box.log_width(x), [np.log([4, 0.5])], rtol=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "bounded"),
    [
        ((-1.0, 0.0), (1.0, 2.0), True),
        ((-1.0, -np.inf), (1.0, 2.0), False),
        ((-3.4e38,), (3.4e38,), False),  # float32's own limits, as some libraries write none
        ((0.0, 1.0), (1.0, 1.0), False),
    ],
)
def test_a_bounded_box_has_finite_bounds_in_every_dimension(low, high, bounded):
    assert Box(low, high).bounded == bounded


def test_box_samples_fill_the_bounds():
    drawn = np.asarray(Box((-2.0, 0.0), (2.0, 1.0)).sample(jax.random.key(0), (4000,)))
    assert drawn.shape == (4000, 2)
    np.testing.assert_allclose(drawn.min(0), [-2, 0], atol=0.01)
    np.testing.assert_allclose(drawn.max(0), [2, 1], atol=0.01)
