"""Checks at run time the axes and dtypes that signatures name: `Float[Array, "E N"]`."""

from types import UnionType
from typing import Any, Union, get_args, get_origin

import jax
import numpy as np
from beartype import beartype
from jaxtyping import AbstractArray, install_import_hook

PURE = ("envs", "learning", "policies", "networks", "kernels")


def install() -> None:
    """Check every module of the pure packages that is imported from now on."""
    install_import_hook([f"jmarl.{name}" for name in PURE], f"{__name__}.checked")


def checked(function):
    """Check those annotations of the function that name axes. Pyright checks the others.
    Constructors are exempt: JAX rebuilds pytrees with leaves that are not arrays."""
    if function.__name__ == "__init__":
        return function
    annotations = function.__annotations__
    named = {name: with_numpy(hint) for name, hint in annotations.items() if names_axes(hint)}
    if not named:
        return function
    function.__annotations__ = {name: named.get(name, Any) for name in annotations}
    return beartype(function)


def names_axes(hint) -> bool:
    """Whether an annotation, or a part of it, is one of jaxtyping's arrays."""
    return is_array(hint) or any(names_axes(part) for part in get_args(hint))


def is_array(hint) -> bool:
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


def with_numpy(hint):
    """The annotation, which then takes a numpy array wherever it takes one of jax's, as jax
    does."""
    if is_array(hint) and hint.array_type is jax.Array:
        return hint | hint.dtype[np.ndarray, hint.dim_str]
    origin, parts = get_origin(hint), tuple(map(with_numpy, get_args(hint)))
    if origin in (Union, UnionType):
        return Union[parts]  # noqa: UP007 (of parts known at run time)
    return origin[parts] if origin in (tuple, list) else hint
