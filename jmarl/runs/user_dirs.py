"""Directories of the user: where compiled programs are kept for the next run, and where matplotlib
keeps its own files."""

import atexit
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

_cache_set_here: str | None = None


def cache_compiled_programs() -> None:
    """Keep what XLA compiles in the user's cache directory. A cache that the user has set up for
    jax counts more; without a directory that can be written there is no cache."""
    import jax

    global _cache_set_here
    if jax.config.values["jax_compilation_cache_dir"] not in (None, _cache_set_here):
        return
    path = base_directory("XDG_CACHE_HOME", ".cache")
    if path is None or not _writable(path / "jmarl" / "xla"):
        return
    _cache_set_here = str(path / "jmarl" / "xla")
    jax.config.update("jax_compilation_cache_dir", _cache_set_here)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def give_matplotlib_a_directory() -> None:
    """Before its import: matplotlib fails without a home directory, and warns when it cannot write
    there. It then gets a directory that is deleted at the end."""
    homes = {"XDG_CONFIG_HOME": ".config", "XDG_CACHE_HOME": ".cache"}
    paths = [base_directory(variable, name) for variable, name in homes.items()]
    relative = any(os.environ.get(v) and not os.path.isabs(os.environ[v]) for v in homes)
    usable = all(path is not None and _writable(path / "matplotlib") for path in paths)
    if os.environ.get("MPLCONFIGDIR") or (usable and not relative):
        return
    os.environ["MPLCONFIGDIR"] = tempfile.mkdtemp(prefix="jmarl-matplotlib-")
    atexit.register(shutil.rmtree, os.environ["MPLCONFIGDIR"], ignore_errors=True)


def base_directory(variable: str, name: str) -> Path | None:
    """`$variable`, else `~/name`. Empty and relative values count as unset, as the XDG base
    directory specification says. None: the user has no home directory."""
    given = os.environ.get(variable, "")
    if os.path.isabs(given):
        return Path(given)
    with contextlib.suppress(RuntimeError):  # neither HOME nor an entry in passwd
        home = Path.home()
        if home.is_absolute():
            return home / name
    return None


def _writable(path: Path) -> bool:
    """Whether the directory is there, or can be made, and can be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(path, os.W_OK | os.X_OK)
