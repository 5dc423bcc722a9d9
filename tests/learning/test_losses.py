"""Loss equations with numbers worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jmarl.learning import losses
from jmarl.learning.collectives import all_sum
from jmarl.types import DATA_AXIS


def test_clipped_surrogate_is_pessimistic_on_both_sides():
    ratio = jnp.array([1.5, 0.5, 1.5, 0.5])
    advantage = jnp.array([1.0, 1.0, -1.0, -1.0])
    # a gain beyond 1.2 is not counted; a loss is counted in full
    expected = [-1.2, -0.5, 1.5, 0.8]
    np.testing.assert_allclose(losses.clipped_surrogate(ratio, advantage, 0.2), expected)


def test_huber_is_quadratic_inside_and_linear_outside_on_both_sides():
    error = np.array([-20.0, -10.0, -1.0, 0.0, 2.0, 30.0])
    # beyond δ = 10: 10·(20 - 5) = 150, 10·(30 - 5) = 250
    np.testing.assert_allclose(losses.huber(jnp.array(error), 10.0), [150, 50, 0.5, 0, 2, 250])
    theirs = torch.nn.functional.huber_loss(
        torch.tensor(error), torch.zeros(6, dtype=torch.float64), reduction="none", delta=10.0
    )
    np.testing.assert_allclose(losses.huber(jnp.array(error), 10.0), theirs, rtol=1e-6)


def test_value_clip_keeps_near_the_old_value():
    clipped = losses.clip_value(jnp.array([1.0, 1.05, 0.0]), jnp.array([1.0, 1.0, 1.0]), 0.1)
    np.testing.assert_allclose(clipped, [1.0, 1.05, 0.9])


def test_reductions_over_agents():
    x = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    mask = jnp.array([[1.0, 1.0], [1.0, 0.0]])
    counts = losses.Counts(
        active=jnp.array(3.0), rows=jnp.array(2.0), entries=jnp.array(4.0), valued=jnp.array(3.0)
    )
    np.testing.assert_allclose(losses.reduce_agents(x, mask, counts, "mean"), 2.0)  # 6/3
    np.testing.assert_allclose(losses.reduce_agents(x, mask, counts, "sum"), 3.0)  # (3 + 3)/2
    np.testing.assert_allclose(losses.entropy_bonus(x, mask, counts, "mean"), 2.0)
    np.testing.assert_allclose(losses.entropy_bonus(x, mask, counts, "sum"), 1.5)  # 6/4
    nobody = counts._replace(active=jnp.array(0.0))
    np.testing.assert_allclose(losses.masked_mean(x, 0 * mask, nobody), 0.0)


@pytest.mark.parametrize("ddof", [0, 1])
def test_advantages_are_normalised_by_active_entries(ddof):
    advantage = jnp.array([[1.0, 2.0], [4.0, 100.0]])
    mask = jnp.array([[1.0, 1.0], [1.0, 0.0]])
    counted = np.array([1.0, 2.0, 4.0])
    expected = (np.asarray(advantage) - counted.mean()) / (counted.std(ddof=ddof) + 1e-5)
    (known,) = losses.moments([(advantage, mask)])
    ours = losses.standardised(advantage, known, 1e-5, ddof)
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_moments_of_shards_are_those_of_all():
    """Three shards, whose active entries are not equally many."""
    rng = np.random.default_rng(3)
    x, mask = rng.normal(50, 2, (3, 5, 2)), rng.random((3, 5, 2)) < 0.6

    def own(x, mask):
        return losses.moments([(x, mask), (x**2, jnp.ones_like(x))], all_sum)

    counted, all_of = jax.vmap(own, axis_name=DATA_AXIS)(jnp.asarray(x), jnp.asarray(mask, float))
    np.testing.assert_allclose(counted.mean, np.full(3, x[mask].mean()), rtol=1e-5)
    np.testing.assert_allclose(counted.variance(1), np.full(3, x[mask].var(ddof=1)), rtol=1e-3)
    np.testing.assert_allclose(all_of.mean, np.full(3, (x**2).mean()), rtol=1e-5)
    np.testing.assert_array_equal(all_of.size, [30, 30, 30])


def test_kl_estimators_agree_on_average_and_one_is_never_negative():
    key = jax.random.key(0)
    x = jax.random.normal(key, (200_000,))
    # two Gaussians a quarter apart: KL = 0.25²/2
    log_ratio = -0.5 * ((x - 0.25) ** 2 - x**2)
    assert (losses.approx_kl(log_ratio) >= 0).all()
    np.testing.assert_allclose(losses.approx_kl(log_ratio).mean(), 0.03125, atol=1e-3)
    np.testing.assert_allclose(losses.old_approx_kl(log_ratio).mean(), 0.03125, atol=3e-3)


def test_clip_fraction():
    np.testing.assert_array_equal(
        losses.clip_fraction(jnp.array([1.0, 1.19, 1.21, 0.79]), 0.2), [0, 0, 1, 1]
    )


def test_explained_variance():
    def explained(value, target):
        given = [(x, jnp.ones(4)) for x in (target, target - value)]
        return losses.explained_variance(*losses.moments(given))

    target = jnp.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(explained(target, target), 1.0)
    np.testing.assert_allclose(explained(jnp.zeros(4), target), 0.0)
    assert jnp.isnan(explained(target, jnp.ones(4)))


def test_the_value_loss_is_the_pessimistic_one():
    loss = losses.clipped_value_loss(jnp.array([1.0, 4.0]), jnp.array([3.0, 2.0]))
    np.testing.assert_array_equal(loss, [3.0, 4.0])
