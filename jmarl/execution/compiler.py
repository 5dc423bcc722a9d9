"""XLA options of single programs, and XLA flags of the whole process.

Options come and go with versions of jaxlib. An unknown compile option is an error; an unknown flag
in `XLA_FLAGS` aborts the process. Therefore every option is tried once before it is used, and left
out if this jaxlib does not know it. Options that the user has set in `XLA_FLAGS` are not changed.
"""

import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

Option = str | bool


def fast_options() -> dict[str, Option]:
    """Options for programs that run for a long time. By default XLA's CPU backend uses half of the
    AVX-512 register width; with the full width training is 1.03 to 1.08 times as fast (Zen 5). CPUs
    without AVX-512 ignore the option."""
    return usable({"xla_cpu_prefer_vector_width": "512"} if _on_cpu() else {})


def quick_options() -> dict[str, Option]:
    """Options for programs that run once, for milliseconds: optimising them would take seconds. The
    older code generator, if this jaxlib still has it, needs much less memory."""
    older: dict[str, Option] = {"xla_cpu_use_fusion_emitters": False} if _on_cpu() else {}
    return usable({"xla_backend_optimization_level": "0"} | older)


def usable(options: Mapping[str, Option]) -> dict[str, Option]:
    """Drop options that the user has set or that this jaxlib does not know."""
    ours = {name: value for name, value in options.items() if not set_by_user(name)}
    return {name: value for name, value in ours.items() if _known(name, value)}


@functools.cache
def _known(name: str, value: Option) -> bool:
    try:
        jax.jit(lambda x: x).lower(0.0).compile(compiler_options={name: value})
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True


def set_by_user(name: str) -> bool:
    """Whether `XLA_FLAGS` contains this option."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    return name in (flag.lstrip("-").partition("=")[0] for flag in flags)


def known_flags(flags: Mapping[str, Option]) -> dict[str, Option]:
    """The flags that this jaxlib accepts in `XLA_FLAGS`. Tried in other processes, because an
    unknown flag aborts the process: all in one (0.1 s), and one by one only if that fails."""
    if not flags or _accepted(tuple(flags.items())):
        return dict(flags)
    return {name: value for name, value in flags.items() if _accepted(((name, value),))}


@functools.cache
def _accepted(flags: tuple[tuple[str, Option], ...]) -> bool:
    parse = "from jaxlib import xla_client; xla_client.CompileOptions()"
    tried = subprocess.run(
        [sys.executable, "-c", parse],
        env=os.environ | {"XLA_FLAGS": written(dict(flags))},
        capture_output=True,
        check=False,
    )
    return tried.returncode == 0


def written(flags: Mapping[str, Option]) -> str:
    """The flags in the syntax of `XLA_FLAGS`."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in flags.items())


@contextlib.contextmanager
def flags_set(flags: Mapping[str, Option]) -> Iterator[None]:
    """Add flags to `XLA_FLAGS` within a context; flags that the user has set take precedence. XLA
    reads them once, when jax creates its devices."""
    ours = {name: value for name, value in flags.items() if not set_by_user(name)}
    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = " ".join(filter(None, [before, written(known_flags(ours))]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["XLA_FLAGS"]
        else:
            os.environ["XLA_FLAGS"] = before


def only_cpu() -> bool:
    """Whether jax will find only a CPU, judged before it initialises its backends."""
    if platforms := os.environ.get("JAX_PLATFORMS"):
        return platforms.strip().lower() == "cpu"
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    return not plugins and importlib.util.find_spec("libtpu") is None


def compile_and_trim(compile: Callable[..., Any], *given: Any) -> Any:
    """Compile, then return the freed memory to the system: hundreds of megabytes, which glibc would
    otherwise keep."""
    compiled = compile(*given)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)
    return compiled


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"
