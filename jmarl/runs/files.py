"""What runs and sweeps keep on disk: the name of every file, and how files are read and written.

    RUN/                 config.yaml  versions.json  metrics.jsonl  evals.jsonl  checkpoints/
                         summary.json  marl_eval.json  tensorboard/  replay.gif
                         changes.jsonl  if a resume has changed options
    RUN/seed_N/          of `--seeds`: the same without checkpoints/, and member.json
    SWEEP/               sweep.yaml  versions.json, and at the end the ranking
    SWEEP/group_N/       what one compiled program trained: checkpoints/, lines of all members
    SWEEP/member_N/      as seed_N/
    SWEEP/confirmation/  the best setting once more: as group_N/, with chosen.json and seed_N/

`sweep.yaml` is named in `jmarl.config.sweep_values`, which reads it.
"""

import contextlib
import io
import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

CONFIG = "config.yaml"
VERSIONS = "versions.json"  # what the run was made with
RUN_ID = "run"  # in versions.json and in every checkpoint
INIT_FROM = "init_from"  # in versions.json: what a warm start has loaded
CHANGES = "changes.jsonl"  # options that a resume has changed, and after which update
LOCK = ".lock"
METRICS = "metrics.jsonl"
EVALUATIONS = "evals.jsonl"
SUMMARY = "summary.json"  # written last
MARL_EVAL = "marl_eval.json"
CHECKPOINTS = "checkpoints"
TENSORBOARD = "tensorboard"
REPLAY = "replay.gif"
EPISODES = "episodes.npz"
MEMBER = "member.json"  # in a member's directory: the group that holds its checkpoints

GROUP_FINISHED = "finished.json"  # in a sweep's group
EXCHANGES = "pbt.jsonl"  # likewise: which member copied which
CONFIRMATION = "confirmation"  # in a sweep
CHOSEN = "chosen.json"  # in it: which setting was the best, and its fresh seeds
RANKING, RANKING_CSV, RANKING_MARKDOWN = "ranking.json", "ranking.csv", "ranking.md"
RANKED_MEMBERS = "members.jsonl"
BEST = "best.yaml"
PLOTS = "plots"

WHOLE = ("update", "steps", "member", "best_update")  # whole numbers, where a line has them
LARGEST = 2**63  # beyond any count

SEEDS, MEMBERS = "seed_*", "member_*"  # directories of runs that were trained together


def seed_name(seed: int) -> str:
    return f"seed_{seed}"


def member_name(index: int, total: int) -> str:
    """Padded with zeros, so that names sort as members do."""
    return f"member_{index:0{max(3, len(str(total - 1)))}}"


def group_name(number: int) -> str:
    return f"group_{number}"


def is_run(path: Path) -> bool:
    """A run, or a member of a group."""
    return os.path.isfile(path / CONFIG)  # False of names that are too long, too


def written_checkpoints(directory: Path) -> list[int]:
    """Their updates. Orbax gives a checkpoint its name when all of it is written."""
    names = (path.name for path in directory.iterdir()) if directory.is_dir() else ()
    return sorted(int(name.removeprefix("update_")) for name in names if is_checkpoint(name))


def is_checkpoint(name: str) -> bool:
    prefix, _, number = name.partition("_")
    return prefix == "update" and number.isdigit()


def is_member(path: Path) -> bool:
    """One of several runs that trained together."""
    return (path / MEMBER).is_file()


class Membership(NamedTuple):
    """Where a member's checkpoints are."""

    group: Path
    member: int  # its place in the group


def read_membership(path: Path) -> Membership | None:
    """None: the run was trained alone, or the file is torn."""
    known = read_json(path / MEMBER)
    group, member = known.get("group"), known.get("member")
    if not isinstance(group, str) or type(member) is not int or member < 0:
        return None
    return Membership(Path(os.path.normpath(path / group)), member)


def write_membership(path: Path, group: Path, member: int) -> None:
    about = {"group": os.path.relpath(group, path), "member": member}
    replace_text(path / MEMBER, json.dumps(about))


def replace_text(path: Path, text: str) -> None:
    """Write a whole file. After a power failure there is the old one or the new one."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    if path.exists() and not path.is_file():  # a device or a pipe has no contents to lose
        path.write_bytes(content)
        return
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def write_json(path: Path, value: Any) -> None:
    replace_text(path, json.dumps(value, indent=1))


def read_json(path: Path) -> dict[str, Any]:
    """Empty if there is no such file or it is not a JSON object."""
    try:
        known = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def as_json(entry: dict[str, Any]) -> str:
    """One line. JSON has neither NaN nor infinity: they become null."""
    strange = {k for k, v in entry.items() if isinstance(v, float) and not math.isfinite(v)}
    return json.dumps({k: None if k in strange else v for k, v in entry.items()})


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that are whole. Others are left out, and one warning counts them."""
    return list(iterate_lines(path))


def iterate_lines(path: Path) -> Iterator[dict[str, Any]]:
    """`read_lines`, one by one: a long run's do not fit into memory at once."""
    damaged = 0
    with path.open("rb") if path.exists() else contextlib.nullcontext(()) as lines:
        for line in lines:
            if (entry := parsed_line(line, path.name)) is not None:
                yield entry
            else:
                damaged += line.endswith(b"\n")  # else the run goes on, or was killed
    if damaged:
        warn_of_damage(path, damaged, "skipped")


def parsed_line(line: bytes, name: str) -> dict[str, Any] | None:
    """None: it is not a JSON object, or not what lines of the file `name` say."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or (name in (METRICS, EVALUATIONS) and not _logged(entry)):
        return None
    return None if name == EVALUATIONS and not _evaluated(entry) else entry


def _logged(entry: dict[str, Any]) -> bool:
    """Whether it says when it was logged, and all figures are numbers."""
    whole = (entry[name] for name in WHOLE if entry.get(name) is not None)
    figures = (x for name, x in entry.items() if "/" in name or name == "seconds")
    return (
        all(type(entry.get(name)) is int for name in ("update", "steps"))
        and all(type(x) is int and 0 <= x < LARGEST for x in whole)
        and all(x is None or (type(x) in (int, float) and abs(x) < math.inf) for x in figures)
    )


def _evaluated(entry: dict[str, Any]) -> bool:
    """Whether it has the time and the mean return, by team where teams are opponents."""
    teams, prefix = entry.get("teams", []), "absolute" if "absolute" in entry else "eval"
    if "seconds" not in entry or not isinstance(teams, list):
        return False
    return all(f"{prefix}/return_mean{of}" in entry for of in [f"/{t}" for t in teams] or [""])


def warn_of_damage(path: Path, count: int, what: str) -> None:
    lines = "1 damaged line is" if count == 1 else f"{count} damaged lines are"
    warnings.warn(f"{str(path)!r}: {lines} {what}.", stacklevel=1)


def read_greedy_evaluations(path: Path) -> list[dict[str, Any]]:
    """A run's evaluations, without the final score of its best parameters."""
    return [line for line in read_lines(path / EVALUATIONS) if "absolute" not in line]


def return_suffixes(line: dict[str, Any]) -> list[str]:
    """What the names of an evaluation's returns end with: nothing, or the names of opposing teams,
    each with returns of its own."""
    return [f"/{team}" for team in line.get("teams", ())] or [""]


def write_lines(path: Path, entries: Iterable[dict[str, Any]]) -> None:
    replace_text(path, "".join(as_json(entry) + "\n" for entry in entries))


def truncate_after(path: Path, update: int) -> None:
    """Drop what a resumed run writes again: lines of later updates, the final score of an earlier
    end, and damaged lines. They are kept beside, in `NAME.dropped.jsonl`."""
    content = path.read_bytes() if path.exists() else b""
    kept, dropped, damaged = [], [], 0
    for line in io.BytesIO(content):
        entry = parsed_line(line, path.name)
        whole = line.removesuffix(b"\n") + b"\n"
        (kept if entry is not None and _stays(entry, update) else dropped).append(whole)
        damaged += entry is None and whole == line  # a kill tears the last line
    if b"".join(kept) == content:
        return
    beside = dropped_lines(path)
    with beside.open("ab") as file:
        file.writelines(dropped)
    replace_bytes(path, b"".join(kept))
    if damaged:
        warn_of_damage(path, damaged, f"left out, and kept in {beside.name!r}")


def dropped_lines(path: Path) -> Path:
    """Where lines of a file are kept that a resumed run writes again."""
    return path.with_suffix(".dropped.jsonl")


def _stays(entry: dict[str, Any], update: int) -> bool:
    return entry["update"] <= update and "absolute" not in entry
