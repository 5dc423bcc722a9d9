"""The user's directories: the cache of compiled programs, and a directory for matplotlib."""

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_cache_set_here: str | None = None


def cache_compiled_programs(wanted: bool) -> None:
    """Cache compiled programs in the user's cache directory, or no longer do so. A cache directory
    that the user has configured for jax takes precedence; without a writable directory there is no
    cache."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    global _cache_set_here
    if jax.config.values["jax_compilation_cache_dir"] not in (None, _cache_set_here):
        return
    if not wanted:
        jax.config.update("jax_compilation_cache_dir", None)
        compilation_cache.reset_cache()
        return
    path = base_directory("XDG_CACHE_HOME", ".cache")
    if path is None or not _writable(path / "jmarl" / "xla"):
        return
    _cache_set_here = str(path / "jmarl" / "xla")
    jax.config.update("jax_compilation_cache_dir", _cache_set_here)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


@contextlib.contextmanager
def jax_cache_restored() -> Iterator[None]:
    """Leaves jax's cache of compiled programs as it was before."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: jax.config.values[name] for name in names}
    try:
        yield
    finally:
        if before != {name: jax.config.values[name] for name in names}:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()


def give_matplotlib_a_directory() -> None:
    """Call this before importing matplotlib, which fails without a home directory and warns if it
    cannot write there. In these cases it gets a directory that is deleted at exit."""
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
    directory specification requires. None if the user has no home directory."""
    given = os.environ.get(variable, "")
    if os.path.isabs(given):
        return Path(given)
    with contextlib.suppress(RuntimeError):  # neither HOME nor an entry in passwd
        home = Path.home()
        if home.is_absolute():
            return home / name
    return None


def _writable(path: Path) -> bool:
    """Whether the directory exists or can be created, and is writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(path, os.W_OK | os.X_OK)
