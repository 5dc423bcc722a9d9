"""Clipping, schedules, minibatches and the KL stop."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from jmarl.types import Batch, Perception
from jmarl.update import (
    Learner,
    chunks,
    clip_by_global_norm,
    gradient_step,
    learn,
    minibatches,
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
        prepare=lambda params, norm, batch: (params + 1.0, norm + 1.0, batch),
        loss_fn=lambda params, norm, batch, counts: ((params**3).sum() * norm, {"x": norm}),
        optimiser=optax.identity(),
        lr=0.1,
        max_grad_norm=5.0,
    )
    np.testing.assert_allclose(learner.params, weight.detach(), rtol=1e-12)
    assert learner.value_norm == metrics["x"] == 1


@pytest.mark.parametrize("shuffle", ["blocks", "rows", "none"])
def test_minibatches_share_out_every_row_once(shuffle):
    take = minibatches(numbered_batch(), jax.random.key(1), 4, shuffle)
    parts = [np.asarray(take(jnp.asarray(i)).active).ravel() for i in range(4)]
    assert {part.size for part in parts} == {T * E // 4}
    together = np.concatenate(parts)
    np.testing.assert_array_equal(np.sort(together), np.arange(T * E))
    in_order = np.array_equal(parts[0], [0, 1, 8, 9, 16, 17])  # worlds 0 and 1 at all times
    assert in_order == (shuffle == "none")


def counting_step(learner, batch):
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
        numbered_batch(),
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
    np.testing.assert_array_equal(cut, [[0, 1, 30, 31], [10, 11, 40, 41], [20, 21, 50, 51]])
