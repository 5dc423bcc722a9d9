"""Options that this jaxlib does not know are left out; the user's own win."""

import os
import subprocess
import sys

import jax
import pytest

from jmarl.execution import compiler
from jmarl.execution.compiler import flags_set, known_flags, set_by_user, usable, written

INVENTED = {"xla_cpu_paint_it_green": True}
KNOWN = {"xla_cpu_prefer_vector_width": "256"}


def test_an_unknown_option_is_left_out():
    assert usable(KNOWN | INVENTED) == KNOWN
    with pytest.raises(jax.errors.JaxRuntimeError):  # it would have been an error
        jax.jit(lambda x: x).lower(0.0).compile(compiler_options=INVENTED)


def test_an_unknown_flag_is_left_out():
    assert known_flags(KNOWN | INVENTED) == KNOWN
    assert known_flags({}) == {}


def test_another_fault_is_not_mistaken_for_an_unknown_option():
    with pytest.raises(jax.errors.JaxRuntimeError):
        usable({"xla_cpu_prefer_vector_width": "wide"})


def test_the_options_in_use_compile():
    for options in (compiler.fast_options(), compiler.quick_options()):
        jax.jit(lambda x: x + 1).lower(0.0).compile(compiler_options=options)


def test_what_the_user_has_set_is_left_alone(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_prefer_vector_width=128")
    assert set_by_user("xla_cpu_prefer_vector_width")
    assert not set_by_user("xla_cpu_prefer")
    assert usable(KNOWN) == {}
    with flags_set(KNOWN | {"xla_cpu_enable_fast_math": False} | INVENTED):
        assert os.environ["XLA_FLAGS"] == (
            "--xla_cpu_prefer_vector_width=128 --xla_cpu_enable_fast_math=false"
        )
    assert os.environ["XLA_FLAGS"] == "--xla_cpu_prefer_vector_width=128"


def test_flags_are_taken_away_again(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS")
    with flags_set(KNOWN):
        assert os.environ["XLA_FLAGS"] == written(KNOWN)
    assert "XLA_FLAGS" not in os.environ


def test_a_platform_that_the_user_has_chosen_counts(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda,cpu")
    assert not compiler.only_cpu()
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert compiler.only_cpu()


def test_xla_aborts_on_an_unknown_flag():
    """Or else `known_flags` would be needless."""
    parse = "from jaxlib import xla_client; xla_client.CompileOptions()"
    env = os.environ | {"XLA_FLAGS": written(INVENTED)}
    done = subprocess.run([sys.executable, "-c", parse], env=env, capture_output=True)
    assert done.returncode != 0
