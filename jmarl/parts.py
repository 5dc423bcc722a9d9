"""Sums over a batch that is too large to be looked at whole: part by part, device by device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec

from jmarl.types import DATA, Batch


@dataclass(frozen=True)
class Parts:
    """How a minibatch is cut. Pieces, along its first axis, are as small as a processor's cache, so
    that what is computed of one never leaves it; shards are what devices hold."""

    pieces: int = 1
    shards: int = 1  # if several, the batch's leading axis
    mesh: Mesh | None = None  # whose devices have the shards; None: one device has all


WHOLE = Parts()


def fewest_pieces(length: int, rows: int, limit: int | None) -> int:
    """Into how many equal pieces `rows` are cut along an axis of `length`: as few as leave no more
    than `limit` in each, or as many as there can be."""
    if limit is None:
        return 1
    fits = (n for n in range(1, length + 1) if length % n == 0 and rows <= n * limit)
    return next(fits, length)


def sum_of_parts(function: Callable[..., Any], parts: Parts, batch: Batch, *given: Any) -> Any:
    """Σ over the parts of `function(part, *given)`: with several devices each sums its own, and
    they exchange one array."""
    if parts == WHOLE:
        return function(batch, *given)
    if parts.shards == 1:
        return _sum_of_pieces(function, parts, batch, *given)

    def own(batch: Batch, *given: Any) -> Any:
        """Of a device's shards."""
        each = jax.tree.leaves(batch)[0].shape[0]

        def one(shard: Batch) -> Any:
            return _sum_of_pieces(function, parts, shard, *given)

        return _total(one, each, lambda i: jax.tree.map(lambda x: x[i], batch))

    if parts.mesh is None or parts.mesh.shape[DATA] == 1:
        return own(batch, *given)

    def exchanged(batch: Batch, *given: Any) -> Any:
        flat, back = ravel_pytree(own(batch, *given))
        return back(lax.psum(flat, DATA))

    whole = PartitionSpec()
    specs = (PartitionSpec(DATA), *(whole for _ in given))
    manual = jax.shard_map(
        exchanged, mesh=parts.mesh, in_specs=specs, out_specs=whole, check_vma=False
    )
    return manual(batch, *given)


def _sum_of_pieces(function: Callable[..., Any], parts: Parts, batch: Batch, *given: Any) -> Any:
    size = batch.active.shape[0] // parts.pieces

    def piece(i: Any) -> Batch:
        return jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, i * size, size), batch)

    return _total(lambda part: function(part, *given), parts.pieces, piece)


def _total(function: Callable[[Any], Any], count: int, part: Callable[[Any], Any]) -> Any:
    """Σ_i function(part(i)), one after the other."""
    if count == 1:
        return function(part(0))

    def add(so_far: Any, i: jax.Array) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, so_far, function(part(i))), None

    shapes = jax.eval_shape(lambda: function(part(0)))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return lax.scan(add, nothing, jnp.arange(count))[0]
