"""Running statistics against torch and numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch_core

from jmarl.normalize import RunningMoments, ValueNorm, popart_rescale


def test_value_norm_over_sequential_updates(x64):
    ours, theirs = ValueNorm.create(), torch_core.ValueNorm(dtype=torch.float64)
    rng = np.random.default_rng(0)
    for scale in (1.0, 50.0, 3.0):
        x = rng.normal(scale, scale, size=(40, 1))
        ours = ours.update(jnp.asarray(x))
        theirs.update(torch.tensor(x))
        for mine, other in [
            (ours.normalise(jnp.asarray(x)), theirs.normalize(torch.tensor(x))),
            (ours.denormalise(jnp.asarray(x)), theirs.denormalize(torch.tensor(x))),
        ]:
            np.testing.assert_allclose(mine, other, rtol=1e-10)


def test_values_are_a_tenth_before_the_first_update():
    np.testing.assert_allclose(ValueNorm.create().denormalise(jnp.array([5.0])), [0.5])


def test_one_update_in_single_precision_is_not_biased():
    """1 - β must not be rounded to float32 first: that would be 0.14 % off."""
    seen = ValueNorm.create().update(jnp.full((10,), 7.0))
    np.testing.assert_allclose(seen.debias, 1e-5, rtol=1e-4)
    np.testing.assert_allclose(seen.moments()[0], 7.0, rtol=1e-5)


def test_variance_has_a_floor():
    seen = ValueNorm.create().update(jnp.ones(10))
    np.testing.assert_allclose(seen.moments()[1], 0.1, rtol=1e-5)


def test_popart_keeps_predictions_and_equals_torch(x64):
    rng = np.random.default_rng(1)
    weight, bias, features = rng.normal(size=(1, 4)), rng.normal(size=1), rng.normal(size=(6, 4))
    reference = torch_core.PopArt(torch.tensor(weight), torch.tensor(bias))
    head = {"kernel": jnp.asarray(weight.T), "bias": jnp.asarray(bias)}
    statistics = ValueNorm.create()

    def predict(head, statistics):
        return statistics.denormalise(jnp.asarray(features) @ head["kernel"] + head["bias"][None])

    for shift in (10.0, -300.0):
        x = rng.normal(shift, 20, size=(30, 1))
        before = predict(head, statistics)
        updated = statistics.update(jnp.asarray(x))
        head, statistics = popart_rescale(head, (), statistics, updated), updated
        np.testing.assert_allclose(predict(head, statistics), before, rtol=1e-10)
        reference.update(torch.tensor(x))
        np.testing.assert_allclose(head["kernel"].T, reference.weight, rtol=1e-10)
        np.testing.assert_allclose(head["bias"], reference.bias, rtol=1e-10)


def test_running_moments_equal_those_of_all_rows(x64):
    rng = np.random.default_rng(2)
    batches = [rng.normal(3, 5, size=(size, 4)) for size in (1, 7, 30)]
    moments = RunningMoments.create((4,), count=0.0)
    for batch in batches:
        moments = jax.jit(RunningMoments.update)(moments, jnp.asarray(batch))
    rows = np.concatenate(batches)
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-10)
    np.testing.assert_allclose(moments.variance, rows.var(0), rtol=1e-10)
    far = jnp.full((4,), 1e6)
    np.testing.assert_array_equal(moments.normalise(far), 10.0)
