"""Clipping, schedules, minibatches and the KL stop."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from jmarl.learning.collectives import Layout
from jmarl.learning.minibatches import Batch, blocks, in_blocks, in_rows, sequences
from jmarl.learning.update import (
    LearnerState,
    clip_by_global_norm,
    clip_parts,
    gradient_step,
    learning_rate,
    run_epochs,
)
from jmarl.types import DATA_AXIS, PolicyInput

T, E = 3, 8


def numbered_batch():
    """Every (time, world) row carries its own number."""
    number = jnp.arange(T * E, dtype=float).reshape(T, E, 1)
    return Batch(PolicyInput(*[number[..., None]] * 3), (), None, *[number] * 6)


def clipped_by_torch(grads, max_norm):
    parameters = [torch.nn.Parameter(torch.zeros(g.shape, dtype=torch.float64)) for g in grads]
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = torch.tensor(grad, dtype=torch.float64)
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    return [parameter.grad for parameter in parameters], norm


BAD = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("max_norm", [0.5, 100.0])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 0.0, 1e19, 1e150, *BAD])
def test_gradient_clip_equals_torch(max_norm, scale, x64):
    """Gradients of 0, and those with an entry that is not finite, too."""
    rng = np.random.default_rng(0)
    grads = {"a": rng.normal(size=(3, 4)), "b": rng.normal(size=5)}
    grads["b"][2] = 1.0
    if np.isfinite(scale):
        grads = {name: scale * g for name, g in grads.items()}
    else:
        grads["b"][2] = scale
    expected, expected_norm = clipped_by_torch(list(grads.values()), max_norm)
    clipped, norm = clip_by_global_norm(jax.tree.map(jnp.asarray, grads), max_norm)
    np.testing.assert_allclose(norm, expected_norm, rtol=1e-12)
    for ours, theirs in zip(clipped.values(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_parts_are_clipped_apart_as_by_torch(x64):
    rng = np.random.default_rng(1)
    grads = {"actor": {"w": rng.normal(size=(3, 4))}, "critic": {"w": 1e-3 * rng.normal(size=5)}}
    clipped, norm = clip_parts(jax.tree.map(jnp.asarray, grads), 0.5)
    for name, part in grads.items():
        (expected,), _ = clipped_by_torch([part["w"]], 0.5)
        np.testing.assert_allclose(clipped[name]["w"], expected, rtol=1e-12)
    whole = np.concatenate([part["w"].ravel() for part in grads.values()])
    np.testing.assert_allclose(norm, np.linalg.norm(whole), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-30, 1e19, 1e30, 3e37])
def test_squares_of_large_gradients_do_not_overflow(scale):
    """In float32 they would from 2e19 on, and the clipped gradient would be 0."""
    grad = np.array([3.0, -4.0, 0.0]) * scale  # the norm is 5·scale
    clipped, norm = clip_by_global_norm({"w": jnp.asarray(grad, jnp.float32)}, 10.0)
    np.testing.assert_allclose(norm, 5 * scale, rtol=1e-6)
    expected = grad * min(1.0, 10.0 / (5 * scale + 1e-6))
    np.testing.assert_allclose(clipped["w"], expected, rtol=1e-6)
    apart, norm = clip_parts({"a": jnp.asarray(grad, jnp.float32), "b": jnp.zeros(2)}, 10.0)
    np.testing.assert_allclose(norm, 5 * scale, rtol=1e-6)
    np.testing.assert_allclose(apart["a"], expected, rtol=1e-6)
    assert not apart["b"].any()


def test_learning_rates_are_the_references(x64):
    """MAT's and on-policy's loop, torch's LinearLR, and XuanCe's own decay with a floor."""
    lr, total = 2.0, 10
    done = np.arange(total + 1)
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    linear = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.5, total_iters=total)
    stepped = []
    for _ in done:
        stepped.append(linear.get_last_lr()[0])
        optimiser.step()
        linear.step()
    expected = {
        ("constant", 0.0): np.full(total + 1, lr),
        ("linear", 0.0): [lr - lr * (episode / float(total)) for episode in done],
        ("linear", 0.5): stepped,
        ("floor", 0.5): [lr * max(1 - step / total, 0.5) for step in done],
    }
    for (schedule, end), rates in expected.items():
        ours = [learning_rate(lr, schedule, jnp.asarray(n) / total, end) for n in done]
        np.testing.assert_allclose(ours, rates, rtol=1e-12, err_msg=f"{schedule} {end}")


@pytest.mark.parametrize(
    ("schedule", "end", "last"), [("linear", 0.0, 0.0), ("linear", 0.3, 0.6), ("floor", 0.3, 0.6)]
)
def test_learning_rates_stay_at_their_end(schedule, end, last):
    """lr is 2. A run that is resumed past its schedule must not climb the loss."""
    for done, total in ((10, 10), (11, 10), (1000, 10), (2e10, 10**10)):
        rate = learning_rate(2.0, schedule, jnp.asarray(done / total), end)
        np.testing.assert_allclose(rate, last, atol=1e-7)
    half = learning_rate(2.0, "linear", jnp.asarray(0.5), 0.0)
    np.testing.assert_allclose(half, 1.0, rtol=1e-6)


def test_gradient_steps_with_sgd_equal_torch(x64):
    """Also: statistics are prepared first, and what `prepare` does to parameters counts."""
    start = np.array([1.0, -2.0, 3.0])
    weight = torch.nn.Parameter(torch.tensor(start + 1.0))
    optimiser = torch.optim.SGD([weight], lr=0.1)
    (weight**3).sum().backward()
    torch.nn.utils.clip_grad_norm_([weight], 5.0)
    optimiser.step()
    learner, metrics = gradient_step(
        LearnerState(jnp.asarray(start), optax.identity().init(start), jnp.zeros(())),
        numbered_batch(),
        minibatch_stats=jnp.ones(()),
        prepare=lambda params, norm, minibatch_stats: (
            params + minibatch_stats,
            norm + minibatch_stats,
        ),
        loss_fn=lambda params, norm, batch, minibatch_stats: (
            (params**3).sum() * norm / T,  # the batch has as many pieces
            {"x": norm / T},
        ),
        optimiser=optax.identity(),
        lr=0.1,
        max_grad_norm=5.0,
    )
    np.testing.assert_allclose(learner.params, weight.detach(), rtol=1e-12)
    assert learner.value_norm == metrics["x"] == 1


def rows_of(epoch, key, count):
    """The minibatches of an epoch, and what is known of each."""
    take = epoch(jax.random.key(key))
    taken = [take(jnp.asarray(i)) for i in range(count)]
    return [np.asarray(part.active) for part, _ in taken], [float(known) for _, known in taken]


def mean(batch):
    """The facts of a minibatch, here."""
    return batch.active.mean()


@pytest.mark.parametrize("shuffle", ["blocks", "rows", "none"])
def test_minibatches_share_out_every_row_once(shuffle):
    if shuffle == "rows":
        epoch = in_rows(numbered_batch(), mean, 4, microbatches=2)
    else:
        laid = blocks(numbered_batch(), 4, microbatches=2, recurrent=False)
        epoch = in_blocks(laid, mean, shuffled=shuffle == "blocks")
    parts, known = rows_of(epoch, 1, 4)
    assert {part.shape for part in parts} == {(2, T * E // 8, 1)}
    np.testing.assert_array_equal(np.sort(np.concatenate(parts, None)), np.arange(T * E))
    np.testing.assert_allclose(known, [part.mean() for part in parts])
    in_order = np.array_equal(parts[0].ravel(), [0, 4, 8, 12, 16, 20])  # worlds 0 and 4
    assert in_order == (shuffle == "none")
    again = np.concatenate(rows_of(epoch, 2, 4)[0], None)
    assert np.array_equal(np.concatenate(parts, None), again) == (shuffle == "none")


def test_sequences_stay_whole():
    """Eight worlds in two minibatches, the even and the odd, of two pieces of two worlds each."""
    laid = blocks(numbered_batch(), 2, microbatches=2, recurrent=True).active
    assert laid.shape == (2, 2, T, 2, 1)
    np.testing.assert_array_equal(laid[1, 0, :, :, 0], [[1, 3], [9, 11], [17, 19]])


def test_permuted_rows_are_shared_out_among_shards():
    """Each of four learns from a part of what one would learn from, in the same order."""
    whole = numbered_batch()
    local_sum = rows_of(in_rows(whole, mean, 3), 0, 3)[0]

    def own(batch):
        epoch = in_rows(batch, mean, 3, layout=Layout(4))(jax.random.key(0))
        return jnp.stack([epoch(jnp.asarray(i))[0].active for i in range(3)])

    split = jax.tree.map(lambda x: x.reshape(T, 4, 2, *x.shape[2:]), whole)
    parts = jax.vmap(own, in_axes=1, axis_name=DATA_AXIS)(
        split
    )  # [shards, minibatches, 1, rows, 1]
    all_sum = np.moveaxis(parts[:, :, 0, :, 0], 0, 1).reshape(3, -1)
    np.testing.assert_array_equal(all_sum, np.stack([part.ravel() for part in local_sum]))


def counting_step(learner, batch, minibatch_stats):
    """Counts up everything, and reports the count as KL."""
    counted = LearnerState(*(x + 1 for x in learner))
    return counted, {"losses/approx_kl": counted.params, "x": counted.params, "y": counted.params}


@pytest.mark.parametrize(
    ("target_kl", "epochs_run"),
    [(None, 5), (0.0, 5), (-1.0, 5), (1.5, 1), (2.0, 2), (4.5, 3), (100.0, 5)],
)
def test_kl_stop_freezes_everything_after_the_epoch_that_went_too_far(target_kl, epochs_run):
    zero = jnp.zeros(())
    learner, metrics = run_epochs(
        LearnerState(zero, zero + 10, zero + 20),
        in_blocks(blocks(numbered_batch(), 2, 1, False), mean, shuffled=True),
        jax.random.key(0),
        counting_step,
        epochs=5,
        num_minibatches=2,
        target_kl=target_kl,
        of_last=["y"],
    )
    # after epoch e the count, and so the KL of the last minibatch, is 2e
    steps = 2 * epochs_run
    np.testing.assert_array_equal(jnp.stack(learner), [steps, 10 + steps, 20 + steps])
    assert metrics["losses/epochs"] == epochs_run
    np.testing.assert_allclose(metrics["x"], (steps + 1) / 2)  # mean of 1 … steps
    assert metrics["y"] == steps  # of the last minibatch that ran


def test_an_epoch_that_would_be_within_the_kl_again_does_not_run():
    """The KL is 1 in the second epoch only, which is the last."""

    def step(learner, batch, minibatch_stats):
        counted = LearnerState(*(x + 1 for x in learner))
        return counted, {"losses/approx_kl": (counted.params == 2).astype(float)}

    zero = jnp.zeros(())
    laid = blocks(numbered_batch(), 1, 1, recurrent=False)
    minibatches = in_blocks(laid, mean, shuffled=True)
    learner, _ = run_epochs(
        LearnerState(zero, zero, zero), minibatches, jax.random.key(0), step, 5, 1, 0.5
    )
    np.testing.assert_array_equal(jnp.stack(learner), [2, 2, 2])


def test_sequences_of_a_rollout_lie_side_by_side():
    """Six steps of two worlds, in sequences of three: rows are told apart by 10·step + world. Each
    has its own memory."""
    rows = 10 * jnp.arange(6)[:, None] + jnp.arange(2)[None]
    starts = jnp.array([[0, 1], [30, 31]])  # before steps 0 and 3
    batch = Batch(PolicyInput(*[rows] * 3), starts, None, *[rows] * 6)
    cut = sequences(batch, 3)
    expected = [[0, 30, 1, 31], [10, 40, 11, 41], [20, 50, 21, 51]]
    np.testing.assert_array_equal(cut.active, expected)
    np.testing.assert_array_equal(cut.start, [[0, 30, 1, 31]])
