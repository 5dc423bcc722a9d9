"""The leaves of a state as named arrays, for storing, comparing and sending."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp


def named_arrays(state: Any) -> dict[str, jax.Array]:
    """Leaves by their path, without empty ones; random keys as their key data."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {_name(path): plain(leaf) for path, leaf in leaves if leaf.size}


def unflatten_named(like: Any, arrays: dict[str, Any]) -> Any:
    """Put the arrays into the structure of `like`."""

    def place(path: Any, leaf: Any) -> Any:
        if not leaf.size:
            return jnp.zeros(leaf.shape, leaf.dtype)
        array = arrays[_name(path)]
        return jax.random.wrap_key_data(array) if is_key(leaf) else array

    return jax.tree_util.tree_map_with_path(place, like)


def with_arrays(state: Any, arrays: Mapping[str, Any]) -> Any:
    """The state with these leaves in place of its own; all members get the same ones."""

    def place(path: Any, leaf: Any) -> Any:
        if (array := arrays.get(_name(path))) is None:
            return leaf
        return jnp.array(jnp.broadcast_to(jnp.asarray(array, leaf.dtype), leaf.shape))

    return jax.tree_util.tree_map_with_path(place, state)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def plain(leaf: Any) -> Any:
    """The leaf itself, or the key data of random keys."""
    if not is_key(leaf):
        return leaf
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.eval_shape(jax.random.key_data, leaf)
    return jax.random.key_data(leaf)
