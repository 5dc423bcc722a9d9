"""Removes empty arrays from trees and restores them. jaxlib 0.11.2 crashes when it compiles a
`jax.shard_map` with an empty array among its arguments or results (0.11.1 and 0.12.0 do not)."""

from typing import Any

import jax


def drop_empty(tree: Any, like: Any) -> list[Any]:
    """The leaves of `tree` at which `like` has non-empty arrays."""
    arrays, structure = jax.tree.flatten(like)
    leaves = structure.flatten_up_to(tree)
    return [leaf for leaf, array in zip(leaves, arrays, strict=True) if array.size]


def insert_empty(leaves: list[Any], like: Any, empty: Any) -> Any:
    """The inverse of `drop_empty`; takes the empty arrays from the tree `empty`."""
    remaining = iter(leaves)
    return jax.tree.map(lambda array, e: next(remaining) if array.size else e, like, empty)
