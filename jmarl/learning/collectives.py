"""How a train step is laid out over devices: every device plays and learns from a shard of the
worlds, and devices meet only for sums over all of them.

Shards are an axis named `data`, of devices (`shard_step` of `jmarl.execution.sharding`) or, on one
device, of `vmap`: both compute the same.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jmarl.types import DATA_AXIS, Tree


class Sum(Protocol):
    """Σ over shards of every array in a tree."""

    def __call__(self, tree: Tree) -> Tree: ...


def local_sum(tree: Tree) -> Tree:
    """Identity: where one shard has all worlds, its sum is already the total."""
    return tree


def all_sum(tree: Tree) -> Tree:
    """Σ over the shards, as one array, so that they meet once."""
    flat, back = ravel_pytree(tree)
    return back(lax.psum(flat, DATA_AXIS))


@dataclass(frozen=True)
class Layout:
    """Into how many shards and microbatches a batch is divided. What is learned does not depend on
    it."""

    shards: int = 1  # equal parts of the worlds
    microbatch_rows: int | None = None  # agents' views per microbatch; None: no microbatches

    def sum(self, tree: Tree) -> Tree:
        """Σ over the shards."""
        return local_sum(tree) if self.shards == 1 else all_sum(tree)

    def gather(self, tree: Tree, axis: int) -> Tree:
        """All shards' arrays, one after the other along `axis`."""
        if self.shards == 1:
            return tree
        return jax.tree.map(lambda x: lax.all_gather(x, DATA_AXIS, axis=axis, tiled=True), tree)

    @property
    def index(self) -> jax.Array | int:
        """Which shard this one is."""
        return lax.axis_index(DATA_AXIS) if self.shards > 1 else 0

    def world_numbers(self, num_envs: int) -> jax.Array:
        """`[E]`: the numbers of a shard's worlds among all worlds."""
        return self.index * num_envs + jnp.arange(num_envs)


def world_axis(few: Any, many: Any) -> int | None:
    """The axis of an array that counts worlds, given its shapes with fewer and with more worlds:
    the one that grows with them, for adapters may put it anywhere. None if worlds share the
    array."""
    pairs = enumerate(zip(few.shape, many.shape, strict=True))
    return next((axis for axis, (a, b) in pairs if a != b), None)
