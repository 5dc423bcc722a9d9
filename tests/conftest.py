"""Strictness for every test: no silent broadcasting of ranks, no random key used twice."""

import gc
import os
import shutil
import sys

import jax
import pytest

from tests.support import checked_axes

checked_axes.install()  # before the first import of a pure package

from jmarl.execution.compiler import known_flags, written  # noqa: E402
from tests.support.browser import browser, open_page  # noqa: E402, F401 (fixtures)
from tests.support.registered import own_registry  # noqa: E402, F401 (a fixture)

# Tests compile much and run little: without XLA's optimiser and with its older code generator,
# where this jaxlib has one, they take half of the time. XLA reads the flags at its first use;
# commands that tests start inherit them. JMARL_TEST_OPTIMISED=1 tests what is shipped.
if "XLA_FLAGS" not in os.environ and not os.environ.get("JMARL_TEST_OPTIMISED"):
    quick = {"xla_backend_optimization_level": "0", "xla_cpu_use_fusion_emitters": False}
    os.environ["XLA_FLAGS"] = written(known_flags(quick))

# The suite's processes share the cores: torch's threads would wait for each other, busily. Torch
# reads this when it is imported; the benchmarks choose for themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tracing makes millions of small objects that stay; looking through them all takes a tenth of the
# suite's time with Python's own thresholds.
gc.set_threshold(200_000, 50, 1_000)

# Where in the source an operation was written is not read here.
jax.config.update("jax_traceback_in_locations_limit", 0)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)


@pytest.fixture(scope="session", autouse=True)
def programs(tmp_path_factory):
    """A process compiles each program once, whichever tests use it. Processes do not share: a cache
    entry that another one is writing cannot be read."""
    path = tmp_path_factory.mktemp("programs")
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    yield
    shutil.rmtree(path)


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
