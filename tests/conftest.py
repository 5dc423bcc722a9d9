"""Strictness for every test: no silent broadcasting of ranks, no random key used twice."""

import os
import sys

import jax
import pytest

from jmarl.execution.compiler import known_flags, written
from tests.support.browser import browser, open_page  # noqa: F401 (fixtures)

# Tests compile much and run little: without XLA's optimiser and with its older code generator,
# where this jaxlib has one, they take half of the time. XLA reads the flags at its first use;
# commands that tests start inherit them.
if "XLA_FLAGS" not in os.environ:
    quick = {"xla_backend_optimization_level": "0", "xla_cpu_use_fusion_emitters": False}
    os.environ["XLA_FLAGS"] = written(known_flags(quick))

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)


@pytest.fixture
def x64():
    """The test runs in double precision."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def foreign():
    """The test runs other libraries' code, which broadcasts and reuses keys as it likes."""
    with jax.numpy_rank_promotion("allow"), jax.debug_key_reuse(False):
        yield


@pytest.fixture
def called(monkeypatch, capsys):
    """`called(module, *arguments)`: a command's exit code, and what it said."""

    def call(module, *arguments):
        monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
        try:
            module.main()
            code = 0
        except SystemExit as stop:
            code = stop.code
        said = capsys.readouterr()
        return code, said.out + said.err

    return call


@pytest.fixture(scope="module")
def unwatched():
    """jax's check for reused keys takes every scan under `vmap` for a second use."""
    with jax.debug_key_reuse(False):
        yield
