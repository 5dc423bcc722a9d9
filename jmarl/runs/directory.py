"""A run's directory: made once, claimed by one process, its lines cut back on resume."""

import contextlib
import fcntl
import importlib.metadata
import itertools
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jmarl.config.formatting import command_line
from jmarl.config.train_config import Config, to_yaml
from jmarl.errors import ConfigError
from jmarl.runs.files import CONFIG, VERSIONS

PACKAGES = ("jmarl", "jax", "jaxlib", "flax", "optax", "distrax", "orbax-checkpoint", "numpy")


def create(config: Config) -> Path:
    """A new directory with the resolved configuration. A name given and in use is refused; one
    chosen here is numbered."""
    name = f"{config.algorithm}-{config.env}-{config.seed}"
    return make("run", config.run_dir, name, {CONFIG: to_yaml(config)})


def make(kind: str, given: Path | None, name: str, files: Mapping[str, str]) -> Path:
    """A new directory for a run or a sweep: `given`, or `runs/name`, numbered if that exists. It
    gets the files and what they were made with."""
    path = given or Path("runs") / re.sub(r"[^\w.-]+", "-", name)
    check_readable(path)
    try:
        path = _make_new(path) if given else _make_numbered(path)
        made_with = {VERSIONS: json.dumps(versions(), indent=1)}
        for file, text in (dict(files) | made_with).items():
            replace_text(path / file, text)
    except FileExistsError as error:
        if given is None or Path(error.filename) != path:
            raise _cannot_be_made(kind, path, error) from None
        raise ConfigError(
            f"{kind}_dir={str(path)!r} exists; choose another name, or continue it with "
            f"{command_line('--resume', path)}."
        ) from None
    except OSError as error:
        raise _cannot_be_made(kind, path, error) from None
    return path


def _cannot_be_made(kind: str, path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{kind} directory {str(path)!r} cannot be made: {error}.")


def _make_new(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def _make_numbered(path: Path) -> Path:
    """Several processes may look for a name at once. Only one of them can make each directory; the
    others go on to the next number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count():
        numbered = path.with_name(f"{path.name}-{number}") if number else path
        with contextlib.suppress(FileExistsError):
            return _make_new(numbered)
    raise AssertionError  # the numbers have no end


def check_readable(path: Path) -> None:
    """Refuse a path that Python can only pass on as bytes: checkpoints are written by a library
    that takes text."""
    whole = os.path.abspath(path)
    try:
        whole.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(
            f"directory {whole!r} cannot be used: its name is not {sys.getfilesystemencoding()}, "
            "the encoding of this locale. Set PYTHONUTF8=1, or choose a directory with another "
            "name."
        ) from None


def keep_resumed(path: Path, config: Config) -> None:
    """A run that is resumed may have been given other options: they are its own from now on."""
    if config.resume is not None:
        kept = config.model_copy(update={"resume": None, "run_dir": path})
        replace_text(path / CONFIG, to_yaml(kept))


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Only one process at a time writes to a run. The claim ends with the process, however."""
    check_readable(path)
    try:
        handle = (path / ".lock").open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"run directory {str(path)!r} cannot be written: {error}.") from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{str(path)!r} is being written by another process.") from None
        yield


def replace_text(path: Path, text: str) -> None:
    """All or nothing, whenever the power fails."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def keep_lines_until(path: Path, update: int) -> None:
    """Drop what was logged after `update`: it is about to be done again. A torn last line goes
    with it."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    kept = [line for line in lines if _update_of(line) <= update]
    replace_text(path, "".join(line + "\n" for line in kept))


def _update_of(line: str) -> float:
    try:
        return json.loads(line)["update"]
    except (ValueError, KeyError, TypeError):
        return float("inf")


def versions() -> dict[str, Any]:
    """What the run was made with."""
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
    }


def record_devices(path: Path, platform: str, count: int, update: int) -> None:
    """Add to `versions.json` on how many devices a run trains. One that is resumed gets a further
    entry: devices, versions and command may be others than at its start."""
    here = {"platform": platform, "devices": count}
    try:
        known = json.loads((path / VERSIONS).read_text(encoding="utf-8"))
        before = known.get("resumed", [])
    except (OSError, ValueError, AttributeError):  # a group of a sweep has none yet
        known, before = versions(), []
    if update:
        known["resumed"] = [*before, {"after_update": update} | here | versions()]
    else:
        known |= here
    replace_text(path / VERSIONS, json.dumps(known, indent=1))


def own_commit() -> str | None:
    """The commit of jmarl's own checkout. None if jmarl does not run from one: a repository that
    merely encloses the installed package does not count."""
    root = Path(__file__).resolve().parents[2]
    found = _git(root, "rev-parse", "--show-toplevel", "HEAD").splitlines()
    if len(found) != 2 or Path(found[0]) != root:
        return None
    return found[1] if _git(root, "ls-files", "jmarl/__init__.py") else None


def _git(root: Path, *arguments: str) -> str:
    """What git prints; nothing if it fails. A repository that the environment names, as it does in
    hooks, is not asked."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=True, env=env)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return os.fsdecode(done.stdout).strip()
