"""The leaves of a state by name: what is stored, compared and sent."""

from typing import Any

import jax
import jax.numpy as jnp


def named_arrays(state: Any) -> dict[str, jax.Array]:
    """Leaves by their path; random keys as the numbers they are made of, empty ones left out."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {_name(path): plain(leaf) for path, leaf in leaves if leaf.size}


def placed(like: Any, arrays: dict[str, Any]) -> Any:
    """The arrays in the structure of `like`."""

    def place(path: Any, leaf: Any) -> Any:
        if not leaf.size:
            return jnp.zeros(leaf.shape, leaf.dtype)
        array = arrays[_name(path)]
        return jax.random.wrap_key_data(array) if is_key(leaf) else array

    return jax.tree_util.tree_map_with_path(place, like)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def plain(leaf: Any) -> Any:
    """Random keys as the numbers they are made of."""
    if not is_key(leaf):
        return leaf
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.eval_shape(jax.random.key_data, leaf)
    return jax.random.key_data(leaf)
