"""Learning from a batch: epochs of minibatches, as scans, with torch's arithmetic."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from jmarl.learning.collectives import Sum, alone
from jmarl.learning.losses import Facts
from jmarl.learning.microbatches import sum_of_pieces
from jmarl.literals import Schedule
from jmarl.types import DATA, Batch, Metrics

LossFn = Callable[[Any, Any, Batch, Facts], tuple[jax.Array, Metrics]]
PrepareFn = Callable[[Any, Any, Facts], tuple[Any, Any]]


class Learner(NamedTuple):
    """What changes from minibatch to minibatch."""

    params: Any
    opt_state: Any
    value_norm: Any


def clip_by_global_norm(grads: Any, max_norm: jax.Array | float) -> tuple[Any, jax.Array]:
    """g·min(1, max/(‖g‖ + 1e-6)), as torch's clip_grad_norm_; also ‖g‖ before."""
    flat, back = ravel_pytree(grads)  # one long sum, not many short ones
    norm = global_norm(flat)
    # inf·0 and a NaN norm give NaN, as in torch
    return back(flat * jnp.minimum(1.0, max_norm / (norm + 1e-6))), norm


def global_norm(x: jax.Array) -> jax.Array:
    """‖x‖ of a vector, scaled by its largest entry so that no square overflows. An infinite entry
    makes it inf, a NaN makes it NaN."""
    # within these limits 1/scale, by which XLA multiplies, is neither 0 nor inf
    limit = 2.0 ** (jnp.finfo(x.dtype).maxexp - 28)
    scale = jnp.clip(jnp.abs(x).max(initial=0.0), 1 / limit, limit)
    return scale * jnp.sqrt(((x / scale) ** 2).sum())


def scheduled(
    lr: jax.Array | float, schedule: Schedule, done: jax.Array, total: int, end_factor: float
) -> jax.Array:
    """The rate after `done` of `total` updates; from then on it stays as it is. linear:
    lr·(1 - (1 - end)·done/total), which MAT, on-policy and PPO have with end 0 and torch's LinearLR
    with any; floor: lr·max(1 - done/total, end), XuanCe's own."""
    if schedule == "constant":
        return jnp.asarray(lr)
    part = jnp.minimum(done / float(total), 1.0)
    if schedule == "floor":
        return lr * jnp.maximum(1.0 - part, end_factor)
    return lr * (1.0 - (1.0 - end_factor) * part)


def clip_parts(grads: Any, max_norm: jax.Array | float) -> tuple[Any, jax.Array]:
    """Each part of the parameters (actor, critic) clipped for itself, as by optimisers of their
    own; also the norm of all."""
    parts = {name: clip_by_global_norm(part, max_norm) for name, part in grads.items()}
    norms = jnp.stack([norm for _, norm in parts.values()])
    return {name: clipped for name, (clipped, _) in parts.items()}, global_norm(norms)


def gradient_step(
    learner: Learner,
    batch: Batch,
    facts: Facts,
    prepare: PrepareFn,
    loss_fn: LossFn,
    optimiser: optax.GradientTransformation,
    lr: jax.Array | float,
    max_grad_norm: jax.Array | float,
    clip_apart: bool = False,
    critic_part: str | None = None,
    critic_lr_factor: jax.Array | float = 1.0,
    across: Sum = alone,
) -> tuple[Learner, Metrics]:
    """θ ← θ - lr·optimiser(clip(∇L)), after the value statistics have learned of the minibatch,
    which comes in pieces `[P, …]`."""
    params, value_norm = prepare(learner.params, learner.value_norm, facts)

    def gradient(part: Batch) -> tuple[Any, Metrics]:
        return jax.grad(loss_fn, has_aux=True)(params, value_norm, part, facts)

    grads, metrics = across(sum_of_pieces(gradient, batch))
    clipped, norm = (clip_parts if clip_apart else clip_by_global_norm)(grads, max_grad_norm)
    updates: Any
    updates, opt_state = optimiser.update(clipped, learner.opt_state, params)
    if critic_part is not None:
        updates = {**updates, critic_part: _scaled(updates[critic_part], critic_lr_factor)}
    params = jax.tree.map(lambda p, u: p - lr * u, params, updates)
    return Learner(params, opt_state, value_norm), metrics | {"losses/grad_norm": norm}


def _scaled(tree: Any, factor: jax.Array | float) -> Any:
    return jax.tree.map(lambda x: x * factor, tree)


def chunks(batch: Batch, length: int) -> Batch:
    """`[T, E, …]` → `[length, E·T/length, …]`: a world's pieces side by side, each a sequence of
    its own. Where a piece begins, `context` is what the policy remembered then."""

    def cut(x: jax.Array) -> jax.Array:
        pieces = x.reshape(-1, length, *x.shape[1:])
        return jnp.moveaxis(pieces, 0, 2).reshape(length, -1, *x.shape[2:])

    return jax.tree.map(cut, batch)


def blocks(batch: Batch, count: int, pieces: int, sequences: bool) -> Batch:
    """`[T, E, …]` → `count` minibatches in pieces `[count, P, rows, …]`; of `sequences`
    `[count, P, T, worlds, …]`. The i-th has the worlds i, i + count, i + 2·count, …: whoever has
    some of the worlds has as many of every minibatch. Laid out once, each is later a slice."""

    def group(x: jax.Array) -> jax.Array:
        length, worlds, *rest = x.shape
        groups = jnp.moveaxis(x.reshape(length, worlds // count, count, *rest), 2, 0)
        if not sequences:
            return groups.reshape(count, pieces, -1, *rest)
        apart = groups.reshape(count, length, pieces, -1, *rest)
        return jnp.moveaxis(apart, 2, 1)

    return jax.tree.map(group, batch)


Minibatch = tuple[Batch, Facts]
Epoch = Callable[[jax.Array], Callable[[jax.Array], Minibatch]]  # key → i → the i-th minibatch


def in_blocks(blocks: Batch, facts: Callable[[Batch], Facts], shuffled: bool) -> Epoch:
    """Groups of worlds in random order. Worlds are alike and independent, so this is a fair
    shuffle; slices cost nothing where gathering rows would cost as much as the gradient, and
    what must be known of a minibatch is the same in every epoch."""
    known, count = (blocks, jax.vmap(facts)(blocks)), len(blocks.active)

    def epoch(key: jax.Array) -> Callable[[jax.Array], Minibatch]:
        order = jax.random.permutation(key, count) if shuffled else jnp.arange(count)
        return lambda i: jax.tree.map(
            lambda x: lax.dynamic_index_in_dim(x, order[i], keepdims=False), known
        )

    return epoch


def in_rows(
    batch: Batch,
    facts: Callable[[Batch], Facts],
    count: int,
    pieces: int = 1,
    shards: int = 1,
) -> Epoch:
    """Single (time, world) rows, permuted exactly as the references do, over all shards: each has
    all rows at hand and learns from its part of a minibatch."""
    if shards > 1:
        batch = jax.tree.map(lambda x: lax.all_gather(x, DATA, axis=1, tiled=True), batch)
    rows = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), batch)

    def epoch(key: jax.Array) -> Callable[[jax.Array], Minibatch]:
        order = jax.random.permutation(key, len(rows.active)).reshape(count, shards, -1)
        mine = lax.axis_index(DATA) if shards > 1 else 0

        def minibatch(i: jax.Array) -> Minibatch:
            chosen = order[i, mine].reshape(pieces, -1)
            taken = jax.tree.map(lambda x: x[chosen], rows)
            return taken, facts(taken)

        return minibatch

    return epoch


def learn(
    learner: Learner,
    minibatches: Epoch,
    key: jax.Array,
    step: Callable[[Learner, Batch, Facts], tuple[Learner, Metrics]],
    epochs: int,
    num_minibatches: int,
    target_kl: jax.Array | float | None = None,
) -> tuple[Learner, Metrics]:
    """`epochs` passes over the batch; metrics averaged over the minibatches that ran.

    With `target_kl`, an epoch after whose last minibatch the KL exceeds it is the last:
    parameters, optimiser and statistics then stay as they are.
    """

    def epoch(carry: tuple[Learner, jax.Array], key: jax.Array) -> tuple:
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

    def mean(x: jax.Array) -> jax.Array:
        """Over the minibatches of the epochs that ran; x: [epochs, minibatches]."""
        return (jnp.where(ran[:, None] > 0, x, 0.0).sum()) / (ran.sum() * num_minibatches)

    averaged = {name: mean(x) for name, x in metrics.items()}
    return learner, averaged | {"losses/epochs": ran.sum()}
