"""From a batch to minibatches: sequences, shuffles, microbatches and shards."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.learning.collectives import Layout
from jmarl.learning.losses import MinibatchStats
from jmarl.learning.microbatches import num_microbatches
from jmarl.literals import Shuffle
from jmarl.types import Context, Memory, PolicyInput

SEQUENCES = 4  # recurrent microbatches may be larger: each matmul covers one time step of them


class Batch(NamedTuple):
    """Rows to learn from, `[T, E, n, …]` or `[B, n, …]`."""

    seen: PolicyInput
    start: Memory  # [1, E, …] before the sequences; () for rows
    context: Context  # as in `PolicyOutput`
    action: jax.Array
    log_prob: jax.Array  # […, n, K]
    value: jax.Array  # […, n] as predicted while acting
    advantage: jax.Array  # […, n]
    target: jax.Array  # […, n] return, in the rewards' own units
    active: jax.Array  # […, n]
    valued: jax.Array | None = None  # […, n]; None: `active`


Minibatch = tuple[Batch, MinibatchStats]
Epoch = Callable[[jax.Array], Callable[[jax.Array], Minibatch]]  # key → i → the i-th minibatch
Stats = Callable[[Batch], MinibatchStats]


def minibatches(
    batch: Batch, count: int, shuffle: Shuffle, recurrent: bool, stats: Stats, layout: Layout
) -> Epoch:
    """`count` minibatches of a batch `[T, E, …]`, each in microbatches as the layout limits them;
    of sequences along T if `recurrent`."""
    _, worlds, agents = batch.active.shape
    views, limit = batch.active.size // count, layout.microbatch_rows
    if recurrent:
        limit = None if limit is None else SEQUENCES * limit
        microbatches = num_microbatches(worlds // count, views, limit)
    else:
        microbatches = num_microbatches(views // agents, views, limit)
    if shuffle == "rows":
        return in_rows(batch, stats, count, microbatches, layout)
    laid = blocks(batch, count, microbatches, recurrent)
    return in_blocks(laid, stats, shuffled=shuffle == "blocks")


def sequences(batch: Batch, length: int) -> Batch:
    """`[T, E, …]` → `[length, E·T/length, …]`: a world's sequences side by side. `start`
    `[T/length, E, …]` becomes `[1, E·T/length, …]`."""

    def cut(x: jax.Array, length: int) -> jax.Array:
        pieces = x.reshape(-1, length, *x.shape[1:])
        return jnp.moveaxis(pieces, 0, 2).reshape(length, -1, *x.shape[2:])

    start = jax.tree.map(partial(cut, length=1), batch.start)
    rows = jax.tree.map(partial(cut, length=length), batch._replace(start=()))
    return rows._replace(start=start)


def blocks(batch: Batch, count: int, microbatches: int, recurrent: bool) -> Batch:
    """`[T, E, …]` → `count` minibatches in microbatches `[count, P, rows, …]`, or of sequences
    `[count, P, T, worlds, …]`. The i-th minibatch has the worlds i, i + count, i + 2·count, …, so
    that every shard has an equal part of each. Laid out once; each is later a slice."""

    def group(x: jax.Array) -> jax.Array:
        length, worlds, *rest = x.shape
        groups = jnp.moveaxis(x.reshape(length, worlds // count, count, *rest), 2, 0)
        if not recurrent:
            return groups.reshape(count, microbatches, -1, *rest)
        apart = groups.reshape(count, length, microbatches, -1, *rest)
        return jnp.moveaxis(apart, 2, 1)

    return jax.tree.map(group, batch)


def in_blocks(blocks: Batch, stats: Stats, shuffled: bool) -> Epoch:
    """Blocks of worlds in random order. Worlds are alike and independent, so this is a fair
    shuffle; slices cost nothing, while gathering rows would cost as much as the gradient, and the
    statistics of a minibatch are the same in every epoch."""
    known, count = (blocks, jax.vmap(stats)(blocks)), len(blocks.active)

    def epoch(key: jax.Array) -> Callable[[jax.Array], Minibatch]:
        order = jax.random.permutation(key, count) if shuffled else jnp.arange(count)
        return lambda i: jax.tree.map(
            lambda x: lax.dynamic_index_in_dim(x, order[i], keepdims=False), known
        )

    return epoch


def in_rows(
    batch: Batch, stats: Stats, count: int, microbatches: int = 1, layout: Layout | None = None
) -> Epoch:
    """Single (time, world) rows, permuted as the references do, over all shards: each gathers all
    rows and learns from its part of a minibatch."""
    layout = layout or Layout()
    whole = layout.gather(batch, axis=1)
    rows = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), whole)

    def epoch(key: jax.Array) -> Callable[[jax.Array], Minibatch]:
        order = jax.random.permutation(key, len(rows.active)).reshape(count, layout.shards, -1)

        def minibatch(i: jax.Array) -> Minibatch:
            chosen = order[i, layout.index].reshape(microbatches, -1)
            taken = jax.tree.map(lambda x: x[chosen], rows)
            return taken, stats(taken)

        return minibatch

    return epoch
