"""Strictness for every test: no silent broadcasting of ranks, no random key used twice."""

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)


@pytest.fixture
def x64():
    """The test runs in double precision."""
    with jax.enable_x64(True):
        yield
