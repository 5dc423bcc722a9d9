"""Gradient steps and epochs of minibatches, as scans, with torch's arithmetic."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from jmarl.learning.collectives import Sum, local_sum
from jmarl.learning.losses import MinibatchStats
from jmarl.learning.microbatches import sum_over_microbatches
from jmarl.learning.minibatches import Batch, Epoch
from jmarl.literals import Schedule
from jmarl.types import Metrics, Params, Tree

# What the value loss knows of its targets: `ValueNorm`, or what an own objective keeps.
ValueStats = Any
LossFn = Callable[[Params, ValueStats, Batch, MinibatchStats], tuple[jax.Array, Metrics]]
PrepareFn = Callable[[Params, ValueStats, MinibatchStats], tuple[Params, ValueStats]]


class LearnerState(NamedTuple):
    """What changes from minibatch to minibatch."""

    params: Params
    opt_state: optax.OptState
    value_norm: ValueStats


MinibatchStep = Callable[[LearnerState, Batch, MinibatchStats], tuple[LearnerState, Metrics]]


def clip_by_global_norm(grads: Tree, max_norm: jax.Array | float) -> tuple[Tree, jax.Array]:
    """g·min(1, max/(‖g‖ + 1e-6)), as torch's clip_grad_norm_; also ‖g‖ before."""
    flat, back = ravel_pytree(grads)  # one long sum, not many short ones
    norm = global_norm(flat)
    # inf·0 and a NaN norm give NaN, as in torch
    return back(flat * jnp.minimum(1.0, max_norm / (norm + 1e-6))), norm


def global_norm(x: jax.Array) -> jax.Array:
    """‖x‖ of a vector. An infinite entry makes it inf, a NaN makes it NaN."""
    squares, limits = (x * x).sum(), jnp.finfo(x.dtype)
    exact = (squares > limits.tiny / limits.eps) & (squares <= limits.max)
    # the scaled sum reads x twice, which a step of few worlds would feel
    return lax.cond(exact, lambda: jnp.sqrt(squares), lambda: _scaled_norm(x))


def _scaled_norm(x: jax.Array) -> jax.Array:
    """‖x‖, scaled by its largest entry so that squares neither overflow nor vanish."""
    # within these limits 1/scale, by which XLA multiplies, is neither 0 nor inf
    limit = 2.0 ** (jnp.finfo(x.dtype).maxexp - 28)
    scale = jnp.clip(jnp.abs(x).max(initial=0.0), 1 / limit, limit)
    return scale * jnp.sqrt(((x / scale) ** 2).sum())


def learning_rate(
    lr: jax.Array | float, schedule: Schedule, progress: jax.Array | float, end_factor: float
) -> jax.Array:
    """The rate after a part `progress` of training; it stays as it is after the end.
    linear: lr·(1 - (1 - end)·progress), which MAT, on-policy and PPO have with end 0 and torch's
    LinearLR with any; floor: lr·max(1 - progress, end), XuanCe's own."""
    if schedule == "constant":
        return jnp.asarray(lr)
    part = jnp.minimum(progress, 1.0)
    if schedule == "floor":
        return lr * jnp.maximum(1.0 - part, end_factor)
    return lr * (1.0 - (1.0 - end_factor) * part)


def clip_parts(grads: Params, max_norm: jax.Array | float) -> tuple[Params, jax.Array]:
    """Clips each part of the parameters (actor, critic) by its own norm, as separate optimisers
    would; also returns the norm of all."""
    parts = {name: clip_by_global_norm(part, max_norm) for name, part in grads.items()}
    norms = jnp.stack([norm for _, norm in parts.values()])
    return {name: clipped for name, (clipped, _) in parts.items()}, global_norm(norms)


def gradient_step(
    learner: LearnerState,
    batch: Batch,
    minibatch_stats: MinibatchStats,
    prepare: PrepareFn,
    loss_fn: LossFn,
    optimiser: optax.GradientTransformation,
    lr: jax.Array | float,
    max_grad_norm: jax.Array | float,
    clip_apart: bool = False,
    critic_part: str | None = None,
    critic_lr_factor: jax.Array | float = 1.0,
    reduce: Sum = local_sum,
) -> tuple[LearnerState, Metrics]:
    """θ ← θ - lr·optimiser(clip(∇L)), after the value statistics have learned from the minibatch,
    which comes in microbatches `[P, …]`."""
    params, value_norm = prepare(learner.params, learner.value_norm, minibatch_stats)

    def gradient(part: Batch) -> tuple[Params, Metrics]:
        return jax.grad(loss_fn, has_aux=True)(params, value_norm, part, minibatch_stats)

    grads, metrics = reduce(sum_over_microbatches(gradient, batch))
    clipped, norm = (clip_parts if clip_apart else clip_by_global_norm)(grads, max_grad_norm)
    updates: Params
    updates, opt_state = optimiser.update(clipped, learner.opt_state, params)
    if critic_part is not None:
        updates = {**updates, critic_part: _scaled(updates[critic_part], critic_lr_factor)}
    params = jax.tree.map(lambda p, u: p - lr * u, params, updates)
    return LearnerState(params, opt_state, value_norm), metrics | {"losses/grad_norm": norm}


def _scaled(tree: Tree, factor: jax.Array | float) -> Tree:
    return jax.tree.map(lambda x: x * factor, tree)


EpochCarry = tuple[LearnerState, jax.Array]  # and whether the KL has stopped learning


def run_epochs(
    learner: LearnerState,
    minibatches: Epoch,
    key: jax.Array,
    step: MinibatchStep,
    epochs: int,
    num_minibatches: int,
    target_kl: jax.Array | float | None = None,
    of_last: Sequence[str] = (),
) -> tuple[LearnerState, Metrics]:
    """`epochs` passes over the batch; metrics averaged over the minibatches that ran, but those in
    `of_last`, which are the last one's.

    With `target_kl`, an epoch after whose last minibatch the KL exceeds it is the last:
    parameters, optimiser and statistics do not change after it.
    """

    def epoch(carry: EpochCarry, key: jax.Array) -> tuple[EpochCarry, tuple[Metrics, jax.Array]]:
        learner, stopped = carry
        take = minibatches(key)
        after, metrics = lax.scan(
            lambda learner, i: step(learner, *take(i)), learner, jnp.arange(num_minibatches)
        )
        if target_kl is None:
            return (after, stopped), (metrics, jnp.ones(()))
        kept = jax.tree.map(lambda old, new: jnp.where(stopped, old, new), learner, after)
        ran = 1.0 - stopped
        # None and values ≤ 0 both mean: never stop
        over = (target_kl > 0) & (metrics["losses/approx_kl"][-1] > target_kl)
        return (kept, stopped | over), (metrics, ran)

    start = (learner, jnp.zeros((), bool))
    (learner, _), (metrics, ran) = lax.scan(epoch, start, jax.random.split(key, epochs))

    means = {
        name: x[ran.sum().astype(int) - 1, -1] if name in of_last else _mean(x, ran)
        for name, x in metrics.items()
    }
    return learner, means | {"losses/epochs": ran.sum()}


def _mean(x: jax.Array, ran: jax.Array) -> jax.Array:
    """Over the minibatches of the epochs that ran; x: [epochs, minibatches]."""
    return (jnp.where(ran[:, None] > 0, x, 0.0).sum()) / (ran.sum() * x.shape[1])
