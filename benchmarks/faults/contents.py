"""What runs and sweeps have on disk, without what a clock says: two that are equal learned the
same."""

import contextlib
import json
from pathlib import Path
from typing import Any

from jmarl.runs.files import (
    CHECKPOINTS,
    EVALUATIONS,
    MEMBER,
    METRICS,
    TENSORBOARD,
    VERSIONS,
    read_json,
    read_membership,
    written_checkpoints,
)

CLOCKS = {"seconds", "elapsed_time", "charts/SPS", "charts/compile_s", "meta"}  # meta: the command
LINES = (METRICS, EVALUATIONS)
UNCOMPARED = {VERSIONS, "report.html", "policy.zip"}  # versions, commands and dates
SLACK = 1  # a checkpoint is still being written while the updates of the next one run


def contents(root: Path) -> dict[str, Any]:
    """By path, everything but checkpoints; of these the digest of the last state."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if path.name == CHECKPOINTS:
            found[str(inside)] = _last_state(path)
        elif not path.is_dir() and not _is_left_out(inside):
            found[str(inside)] = _content(path)
    return found


def _is_left_out(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    apart = {CHECKPOINTS, TENSORBOARD} & set(path.parts)
    return hidden or bool(apart) or path.name in UNCOMPARED or ".dropped." in path.name


def _content(path: Path) -> Any:
    if path.suffix == ".jsonl":
        return [timeless(line) for line in lines_of(path)]
    if path.suffix == ".json":
        return timeless(read_json(path))
    return path.read_bytes()


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Without those that are damaged."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [line for line in found if isinstance(line, dict)]


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in CLOCKS}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def _last_state(checkpoints: Path) -> tuple[int, str] | None:
    """The last checkpoint's update, and the digest of its parameters, optimiser, worlds and
    statistics."""
    updates = written_checkpoints(checkpoints)
    if not updates:
        return None
    about = checkpoints / f"update_{updates[-1]}" / "about" / "metadata"
    return updates[-1], str(read_json(about).get("digest"))


def difference(found: dict[str, Any], expected: dict[str, Any], apart: tuple[str, ...] = ()) -> str:
    """The first file that is not as it should be. `apart`: names of files that may differ."""
    for name in sorted(found.keys() | expected.keys()):
        if Path(name).name in apart or found.get(name) == expected.get(name):
            continue
        if name not in found:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is left over"
        return f"{name} differs{_where(found[name], expected[name])}"
    return ""


def _where(found: Any, expected: Any) -> str:
    """The first key or line that differs, and how."""
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = sorted(found.keys() | expected.keys(), key=str)
        parts = ((key, found.get(key), expected.get(key)) for key in keys)
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        parts = ((i, *both) for i, both in enumerate(zip(found, expected, strict=True)))
    else:
        return f": {str(found)[:100]}, not {str(expected)[:100]}"
    return next((f" in {key}{_where(*both)}" for key, *both in parts if both[0] != both[1]), "")


def lost_history(root: Path, expected: dict[str, Any]) -> str:
    """The first file without a line that it had at the last checkpoint."""
    for path in sorted(root.rglob("*.jsonl")):
        name = str(path.relative_to(root))
        if path.name not in LINES or name not in expected:
            continue
        saved = last_saved(path.parent)
        wanted = [line for line in expected[name] if _until(line, saved)]
        if [line for line in _content(path) if _until(line, saved)] != wanted:
            return f"{name} lost lines up to update {saved}, the last checkpoint"
    return ""


def _until(line: dict[str, Any], update: int) -> bool:
    return line.get("update", 0) <= update and "absolute" not in line


def last_saved(path: Path) -> int:
    """The update of the last checkpoint of a run, a group or a member; -1 if there is none."""
    member = read_membership(path) if (path / MEMBER).is_file() else None
    place = (path if member is None else member.group) / CHECKPOINTS
    return max(written_checkpoints(place), default=-1)


def lost_updates(root: Path) -> int:
    """How many updates' work is gone: those after the last checkpoint, of the group with most."""
    lost = [0]
    for path in root.rglob(METRICS):
        lines = lines_of(path)
        if lines and (path.parent / CHECKPOINTS).is_dir():
            lost.append(lines[-1]["update"] - max(last_saved(path.parent), 0))
    return max(lost)


def too_many_checkpoints(root: Path, most: int) -> str:
    """The latest few and the best are kept."""
    for path in root.rglob(CHECKPOINTS):
        if len(kept := written_checkpoints(path)) > most + 1:
            return f"{len(kept)} checkpoints are kept in {path.relative_to(root)}"
    return ""
