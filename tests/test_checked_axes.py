"""Tests run with the axes of annotated signatures checked."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, TypeCheckError, jaxtyped

from jmarl.envs.mpe import world
from tests.support.checked_axes import checked


def test_the_pure_packages_are_checked():
    assert world.square_norm(jnp.ones((3, 2, 5))).shape == (3, 5)
    with pytest.raises(TypeCheckError, match="square_norm"):
        world.square_norm(jnp.ones((3, 4, 5)))
    with pytest.raises(TypeCheckError, match="square_norm"):
        world.square_norm(jnp.ones((3, 2, 5), int))


def test_only_annotations_that_name_axes_are_checked():
    @jaxtyped(typechecker=checked)
    def scaled(x: Float[Array, "E N"], by: Array, also: list[Float[Array, " N"]]) -> str:
        return x * by

    row = jnp.ones(3)
    assert scaled(jnp.ones((2, 3)), np.float32(2), [row]).shape == (2, 3)
    assert scaled(np.ones((2, 3)), 2, [np.ones(3)]).shape == (2, 3)  # numpy's count as jax's
    with pytest.raises(TypeCheckError, match="also"):
        scaled(jnp.ones((2, 3)), np.float32(2), [jnp.ones(4)])


def test_an_unannotated_function_stays_itself():
    def plain(x: int) -> "Array": ...

    assert checked(plain) is plain
