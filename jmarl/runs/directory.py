"""The directory of a run or a sweep: created once, written by one process at a time."""

import contextlib
import errno
import fcntl
import glob
import importlib.metadata
import importlib.util
import itertools
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jmarl import plugins
from jmarl.config.formatting import command_line
from jmarl.config.stored import read_stored
from jmarl.config.train_config import Config, build, flat_values, to_yaml
from jmarl.errors import ConfigError, brief
from jmarl.runs.files import (
    CHANGES,
    CONFIG,
    INIT_FROM,
    LOCK,
    RUN_ID,
    VERSIONS,
    read_json,
    read_lines,
    replace_text,
    write_json,
    write_lines,
)
from jmarl.runs.formats import stamp

TAKEN = (errno.EWOULDBLOCK, errno.EACCES)  # why a lock is not given: another process has it
ROOM = 512  # bytes that paths of files in a run's directory need beyond its own
PACKAGES = ("jmarl", "jax", "jaxlib", "flax", "optax", "distrax", "orbax-checkpoint", "numpy")


def create(config: Config) -> Path:
    """Create a run's directory, with its resolved configuration."""
    check_loggers(config)
    name = f"{config.algorithm}-{config.env}-{config.seed}"
    return make("run", config.run_dir, name, {CONFIG: to_yaml(config)})


def check_loggers(config: Config) -> None:
    """Refuse a logger that is not installed, before anything is on disk."""
    known = "wandb" in sys.modules or importlib.util.find_spec("wandb") is not None
    if config.wandb and not known:
        raise ConfigError(
            "wandb=True needs the 'wandb' extra, which is not installed: "
            'pip install "jmarl[wandb]".'
        )


def make(kind: str, given: Path | None, name: str, files: Mapping[str, str]) -> Path:
    """Create a directory for a run or a sweep, with `files` and the versions that make it: `given`,
    which must not exist, or `runs/name`, with a number if that exists."""
    path = given or Path("runs") / re.sub(r"[^\w.-]+", "-", name)
    check_readable(path)
    _check_lengths(kind, path)
    missing = [parent for parent in path.absolute().parents if not os.path.exists(parent)]
    try:
        path = _make_new(path) if given else _make_numbered(path)
    except FileExistsError as error:
        if given is None or Path(error.filename) != path:
            raise _cannot_be_made(kind, path, error) from None
        raise ConfigError(
            f"{kind}_dir={str(path)!r} exists; choose another name, or continue it with "
            f"{command_line('--resume', path)}."
        ) from None
    except OSError as error:
        _remove([], missing)
        raise _cannot_be_made(kind, path, error) from None
    try:
        for file, text in files.items():
            replace_text(path / file, text)
        write_json(path / VERSIONS, versions() | _identity())
    except OSError as error:
        _remove([path], missing)
        raise _cannot_be_made(kind, path, error) from None
    return path


def _check_lengths(kind: str, path: Path) -> None:
    """Refuse names that the file system does not take, before any parent directory is made."""
    whole = path.absolute()
    there = next(parent for parent in (whole, *whole.parents) if os.path.exists(parent))
    longest, deepest = (os.pathconf(there, name) for name in ("PC_NAME_MAX", "PC_PATH_MAX"))
    given = f"{kind}_dir={brief(str(path))} cannot be made"
    size = max(len(os.fsencode(part)) for part in whole.parts)
    if size > longest:
        raise ConfigError(f"{given}: a name in it has {size} bytes; here they have 1 to {longest}.")
    if (size := len(os.fsencode(whole))) > deepest - ROOM:
        raise ConfigError(
            f"{given}: its path has {size} bytes; here it has at most {deepest - ROOM}, so that "
            "its files have names too."
        )


def _remove(made: Sequence[Path], parents: Sequence[Path]) -> None:
    """What was made for a directory that is refused; of its parents those that are empty."""
    for path in made:
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        for parent in parents:
            parent.rmdir()


def _cannot_be_made(kind: str, path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{kind} directory {brief(str(path))} cannot be made: {error}.")


def _make_new(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def _make_numbered(path: Path) -> Path:
    """Of several processes that try one name at once, a single one creates the directory; the
    others try the next number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count():
        numbered = path.with_name(f"{path.name}-{number}") if number else path
        with contextlib.suppress(FileExistsError):
            return _make_new(numbered)
    raise AssertionError  # the numbers have no end


def check_readable(path: Path) -> None:
    """Refuse a path that is not valid text: Orbax and tensorstore take no bytes. And one that is a
    pattern: Orbax looks for parts of a checkpoint by `glob`, and would lose them in `[a]`."""
    whole = os.path.abspath(path)
    if glob.has_magic(whole):
        raise ConfigError(
            f"directory {brief(whole)} cannot be used: checkpoints cannot be saved below a name "
            "with [, * or ?."
        )
    if "\0" in whole:
        raise ConfigError(f"directory {brief(whole)} cannot be used: names have no NUL.")
    try:
        whole.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(
            f"directory {whole!r} cannot be used: its name is not {sys.getfilesystemencoding()}, "
            "the encoding of this locale. Set PYTHONUTF8=1, or choose a directory with another "
            "name."
        ) from None


def store_resumed_config(path: Path, config: Config, update: int) -> None:
    """A resumed run may have got other options: store them as its configuration, and what changed
    after which update as a line of its history."""
    if config.resume is None:
        return
    kept = config.model_copy(update={"resume": None, "run_dir": path})
    changed = changes(build(read_stored(path / CONFIG)), kept)
    changed.pop("run_dir", None)  # the directory was moved
    if changed:
        known = read_lines(path / CHANGES)
        write_lines(path / CHANGES, [*known, {"after_update": update, "changed": changed}])
    replace_text(path / CONFIG, to_yaml(kept))


def changes(before: Config, after: Config) -> dict[str, tuple[Any, Any]]:
    """The options that differ, by full name, with both values."""
    was, now = (dict(flat_values(each)) for each in (before, after))
    names = sorted(was.keys() & now.keys())
    return {name: (was[name], now[name]) for name in names if was[name] != now[name]}


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Let only one process at a time write to a run. The kernel releases the lock when the process
    ends, however it ends."""
    check_readable(path)
    try:
        handle = (path / LOCK).open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"run directory {str(path)!r} cannot be written: {error}.") from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in TAKEN:
                raise ConfigError(f"{str(path)!r} is being written by another process.") from None
            warnings.warn(
                f"{str(path)!r} is not locked, because its file system has no locks ({error}): "
                "see to it that no other process writes to it.",
                stacklevel=3,
            )
        yield


def versions() -> dict[str, Any]:
    """The versions, command line and commit of this process."""
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "command": sys.argv,
        "commit": own_commit(),
        "packages": found,
    } | ({"plugins": loaded} if (loaded := plugins.digests()) else {})


def check_plugins(path: Path, again: Sequence[str] | None = None) -> None:
    """Say which plug-ins of the run in `path` have changed since. A run that is to be resumed is
    refused, unless they were named once more, `again`: what it has learned so far was learned with
    others. (None: it is not resumed.)"""
    for plugin in plugins.changed(_recorded_plugins(path)):
        differs = f"plug-in {plugin.name!r} is not what {str(path)!r} was trained with"
        if again is None:
            warnings.warn(f"{differs}: it has changed since.", stacklevel=2)
        elif plugin.name not in again:
            raise ConfigError(
                f"{differs}: it has changed since. Restore it, or go on with it as it is now: "
                f"{command_line('--resume', path, '--plugin', plugin.name)}."
            )


def _recorded_plugins(path: Path) -> list[Any]:
    """What the run, or the seeds or the sweep that it is one of, went on with last."""
    whole = path.absolute()
    for place in (whole, *whole.parents[:2]):
        known = read_json(place / VERSIONS)
        resumed = known.get("resumed")
        for entry in (*reversed(resumed if isinstance(resumed, list) else []), known):
            found = entry.get("plugins") if isinstance(entry, dict) else None
            if isinstance(found, list):
                return found
    return []


def record_devices(
    path: Path,
    platform: str,
    count: int,
    update: int,
    run: str | None = None,
    init_from: Mapping[str, Any] | None = None,
) -> None:
    """Add the devices that a run trains on to `versions.json`. Every resume adds an entry, because
    devices, versions and command may have changed. `run`: its id, for a file that is lost; with
    another one it could not read its own checkpoints. `init_from`: what a warm start has loaded."""
    here = {"platform": platform, "devices": count}
    known = read_json(path / VERSIONS) or versions()  # a sweep's group has none yet
    known = _identity() | ({RUN_ID: run} if run else {}) | known | stamp()
    if init_from is not None:
        known[INIT_FROM] = dict(init_from)
    if update:
        resumed = {"after_update": update} | here | versions()
        before = known.get("resumed")
        known["resumed"] = [*(before if isinstance(before, list) else []), resumed]
    else:
        known |= here
    write_json(path / VERSIONS, known)


def _identity() -> dict[str, Any]:
    """The id by which checkpoints know their run, and the format."""
    return {RUN_ID: secrets.token_hex(8)} | stamp()


def own_commit() -> str | None:
    """The commit of jmarl's checkout. None if jmarl is installed elsewhere, even inside another
    repository."""
    root = Path(__file__).resolve().parents[2]
    found = _git(root, "rev-parse", "--show-toplevel", "HEAD").splitlines()
    if len(found) != 2 or Path(found[0]) != root:
        return None
    return found[1] if _git(root, "ls-files", "jmarl/__init__.py") else None


def _git(root: Path, *arguments: str) -> str:
    """What git prints, or an empty string if it fails. Ignores GIT_DIR and the like, which git sets
    in hooks: they name another repository."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=True, env=env)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return os.fsdecode(done.stdout).strip()
