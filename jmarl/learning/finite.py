"""Checks for numbers that are not finite."""

from typing import Any

import jax
import jax.numpy as jnp

from jmarl.types import Tree


def all_finite(tree: Any) -> jax.Array:
    """Whether every float in `tree` is finite: one check over one long vector."""
    leaves = [jnp.asarray(x) for x in jax.tree.leaves(tree)]
    floats = [x.reshape(-1) for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.isfinite(jnp.concatenate(floats)).all() if floats else jnp.array(True)


def select(good: jax.Array, new: Tree, old: Tree) -> Tree:
    """`new` where `good`, else `old`."""
    return jax.tree.map(lambda n, o: jnp.where(good, n, o), new, old)


def finite_or_zero(tree: Tree) -> Tree:
    """0 in place of every float that is NaN or infinite."""

    def one(x: jax.Array) -> jax.Array:
        is_float = jnp.issubdtype(x.dtype, jnp.floating)
        return jnp.where(jnp.isfinite(x), x, 0.0) if is_float else x

    return jax.tree.map(one, tree)
