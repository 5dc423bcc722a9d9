"""Clipping, schedules, minibatches and the KL stop."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from jmarl.types import DATA, Batch, Perception
from jmarl.update import (
    Learner,
    blocks,
    chunks,
    clip_by_global_norm,
    gradient_step,
    in_blocks,
    in_rows,
    learn,
    scheduled,
)

T, E = 3, 8


def numbered_batch():
    """Every (time, world) row carries its own number."""
    number = jnp.arange(T * E, dtype=float).reshape(T, E, 1)
    return Batch(Perception(*[number[..., None]] * 3), None, *[number] * 6)


@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_gradient_clip_equals_torch(max_norm, x64):
    rng = np.random.default_rng(0)
    grads = {"a": rng.normal(size=(3, 4)), "b": rng.normal(size=5)}
    parameters = [
        torch.nn.Parameter(torch.zeros(g.shape, dtype=torch.float64)) for g in grads.values()
    ]
    for parameter, grad in zip(parameters, grads.values(), strict=True):
        parameter.grad = torch.tensor(grad)
    expected_norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    clipped, norm = clip_by_global_norm(jax.tree.map(jnp.asarray, grads), max_norm)
    np.testing.assert_allclose(norm, expected_norm, rtol=1e-12)
    for parameter, grad in zip(parameters, clipped.values(), strict=True):
        np.testing.assert_allclose(grad, parameter.grad, rtol=1e-12)


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
        ours = [scheduled(lr, schedule, jnp.asarray(n), total, end) for n in done]
        np.testing.assert_allclose(ours, rates, rtol=1e-12, err_msg=f"{schedule} {end}")


def test_gradient_steps_with_sgd_equal_torch(x64):
    """Also: statistics are prepared first, and what `prepare` does to parameters counts."""
    start = np.array([1.0, -2.0, 3.0])
    weight = torch.nn.Parameter(torch.tensor(start + 1.0))
    optimiser = torch.optim.SGD([weight], lr=0.1)
    (weight**3).sum().backward()
    torch.nn.utils.clip_grad_norm_([weight], 5.0)
    optimiser.step()
    learner, metrics = gradient_step(
        Learner(jnp.asarray(start), optax.identity().init(start), jnp.zeros(())),
        numbered_batch(),
        facts=jnp.ones(()),
        prepare=lambda params, norm, facts: (params + facts, norm + facts),
        loss_fn=lambda params, norm, batch, facts: (
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
        epoch = in_rows(numbered_batch(), mean, 4, pieces=2)
    else:
        laid = blocks(numbered_batch(), 4, pieces=2, sequences=False)
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
    laid = blocks(numbered_batch(), 2, pieces=2, sequences=True).active
    assert laid.shape == (2, 2, T, 2, 1)
    np.testing.assert_array_equal(laid[1, 0, :, :, 0], [[1, 3], [9, 11], [17, 19]])


def test_permuted_rows_are_shared_out_among_shards():
    """Each of four learns from a part of what one would learn from, in the same order."""
    whole = numbered_batch()
    alone = rows_of(in_rows(whole, mean, 3), 0, 3)[0]

    def own(batch):
        epoch = in_rows(batch, mean, 3, shards=4)(jax.random.key(0))
        return jnp.stack([epoch(jnp.asarray(i))[0].active for i in range(3)])

    split = jax.tree.map(lambda x: x.reshape(T, 4, 2, *x.shape[2:]), whole)
    parts = jax.vmap(own, in_axes=1, axis_name=DATA)(split)  # [shards, minibatches, 1, rows, 1]
    together = np.moveaxis(parts[:, :, 0, :, 0], 0, 1).reshape(3, -1)
    np.testing.assert_array_equal(together, np.stack([part.ravel() for part in alone]))


def counting_step(learner, batch, facts):
    """Counts up everything, and reports the count as KL."""
    counted = Learner(*(x + 1 for x in learner))
    return counted, {"losses/approx_kl": counted.params, "x": counted.params}


@pytest.mark.parametrize(
    ("target_kl", "epochs_run"),
    [(None, 5), (0.0, 5), (-1.0, 5), (1.5, 1), (2.0, 2), (4.5, 3), (100.0, 5)],
)
def test_kl_stop_freezes_everything_after_the_epoch_that_went_too_far(target_kl, epochs_run):
    zero = jnp.zeros(())
    learner, metrics = learn(
        Learner(zero, zero + 10, zero + 20),
        in_blocks(blocks(numbered_batch(), 2, 1, False), mean, shuffled=True),
        jax.random.key(0),
        counting_step,
        epochs=5,
        num_minibatches=2,
        target_kl=target_kl,
    )
    # after epoch e the count, and so the KL of the last minibatch, is 2e
    steps = 2 * epochs_run
    np.testing.assert_array_equal(jnp.stack(learner), [steps, 10 + steps, 20 + steps])
    assert metrics["losses/epochs"] == epochs_run
    np.testing.assert_allclose(metrics["x"], (steps + 1) / 2)  # mean of 1 … steps


def test_chunks_are_pieces_of_a_rollout_side_by_side():
    """Six steps of two worlds, in pieces of three: rows are told apart by 10·step + world."""
    rows = 10 * jnp.arange(6)[:, None] + jnp.arange(2)[None]
    cut = chunks(rows, 3)
    np.testing.assert_array_equal(cut, [[0, 30, 1, 31], [10, 40, 11, 41], [20, 50, 21, 51]])
