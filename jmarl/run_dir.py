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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jmarl.config import Config, to_yaml
from jmarl.errors import ConfigError

PACKAGES = ("jmarl", "jax", "jaxlib", "flax", "optax", "distrax", "orbax-checkpoint", "numpy")


def create(config: Config) -> Path:
    """A new directory with the resolved configuration. A name given and in use is refused; one
    chosen here is numbered."""
    if config.run_dir is not None:
        if config.run_dir.exists():
            raise ConfigError(
                f"run_dir={str(config.run_dir)!r} exists; choose another name, or continue it "
                f"with --resume {config.run_dir}."
            )
        path = config.run_dir
    else:
        stem = re.sub(r"[^\w.-]+", "-", f"{config.algorithm}-{config.env}-{config.seed}")
        path = free_name(Path("runs") / stem)
    try:
        path.mkdir(parents=True)
        replace_text(path / "config.yaml", to_yaml(config))
        replace_text(path / "versions.json", json.dumps(versions(), indent=1))
    except OSError as error:
        raise ConfigError(f"run directory {str(path)!r} cannot be made: {error}.") from None
    return path


def keep_resumed(path: Path, config: Config) -> None:
    """A run that is resumed may have been given other options: they are its own from now on."""
    if config.resume is not None:
        kept = config.model_copy(update={"resume": None, "run_dir": path})
        replace_text(path / "config.yaml", to_yaml(kept))


def free_name(path: Path) -> Path:
    """`path`, numbered if that exists."""
    names = (path.with_name(f"{path.name}-{n}") for n in itertools.count(1))
    return next(name for name in itertools.chain([path], names) if not name.exists())


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Only one process at a time writes to a run. The claim ends with the process, however."""
    try:
        handle = (path / ".lock").open("w")
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
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def keep_lines_until(path: Path, update: int) -> None:
    """Drop what was logged after `update`: it is about to be done again. A torn last line goes
    with it."""
    if not path.exists():
        return
    kept = [line for line in path.read_text().splitlines() if _update_of(line) <= update]
    replace_text(path, "".join(line + "\n" for line in kept))


def _update_of(line: str) -> float:
    try:
        return json.loads(line)["update"]
    except (ValueError, KeyError, TypeError):
        return float("inf")


def versions() -> dict[str, Any]:
    """What the run was made with."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        commit = ""
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "command": sys.argv,
        "commit": commit or None,
        "packages": found,
    }
