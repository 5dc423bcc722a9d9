"""Runs on disk, finished or not: what reports are made from."""

import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from jmarl.config.yaml_files import read_yaml
from jmarl.errors import ConfigError
from jmarl.reports.numbers import number
from jmarl.reports.opponents import Line, opposing_teams, without_sums
from jmarl.runs.files import (
    CONFIG,
    EVALUATIONS,
    MEMBERS,
    METRICS,
    SEEDS,
    SUMMARY,
    is_member,
    is_run,
    parsed_line,
    read_json,
    warn_of_damage,
)
from jmarl.runs.formats import check_directory

UNFINISHED = "unfinished: still running, or cut short"

MOST_LINES = 2_000_000  # kept of all runs of a report, at about 100 bytes each
TELLING = 100


@dataclass(frozen=True)
class Lines:
    """The numbers of a file's lines, as columns in the order in which they were written. `len` is
    the number of lines in the file, of which every first, second, … is kept."""

    steps: np.ndarray  # [kept]
    columns: dict[str, np.ndarray]  # [kept], NaN where a line has no finite number of this name
    last: Line  # as it was written; empty if there is none
    count: int

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True)
class Run:
    """One seed of one configuration."""

    name: str  # as it was given
    path: Path
    config: dict[str, Any]  # by full name, `ppo.lr`
    metrics: Lines
    evals: Lines
    absolute: Line | None  # the best parameters, scored at the end
    state: str  # how it ended
    together: bool  # trained with others in one program, so that they share a clock
    teams: tuple[str, ...]  # that play against each other; none where all agents are one team

    @property
    def seed(self) -> Any:
        return self.config.get("seed")

    @property
    def directory(self) -> str:
        """Its name; of one of several seeds, theirs."""
        path = self.path.resolve()
        one_of_many = self.together and path.match(SEEDS)
        return printable_path(path.parent if one_of_many else path).rpartition("/")[2]

    @property
    def swept(self) -> bool:
        return self.path.resolve().match(MEMBERS)

    @property
    def seconds(self) -> float:
        """Of training."""
        known = (number(lines.last.get("seconds")) for lines in (self.metrics, self.evals))
        return max((value for value in known if value is not None), default=0.0)

    @property
    def empty(self) -> bool:
        return not self.metrics and not self.evals

    @property
    def steps(self) -> int:
        """The last step that was logged."""
        return max(int(lines.steps.max(initial=0)) for lines in (self.metrics, self.evals))

    @property
    def budget(self) -> int | None:
        """Steps that it was to do: whole updates."""
        option = self.config
        try:
            update = option["num_envs"] * option["rollout_length"]
            return (option["total_updates"] or option["total_steps"] // update) * update
        except (KeyError, TypeError, ZeroDivisionError):  # not a configuration of ours
            return None


def find_runs(given: Iterable[Path]) -> list[Path]:
    """Directories of single runs: `given` themselves, or the members of a sweep, the seeds that
    were trained together, the runs in a directory of runs. None twice."""
    found: dict[Path, Path] = {}
    for path in given:
        if not path.is_dir():
            raise ConfigError(f"there is no directory {printable_path(path)!r}.")
        own = list(_runs_in(path)) or [run for part in _directories(path) for run in _runs_in(part)]
        if not own:
            raise ConfigError(
                f"{printable_path(path)!r} is not a run: it has no {CONFIG}, and nor has any "
                "directory in it."
            )
        for run in own:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _runs_in(path: Path) -> Iterator[Path]:
    """The seeds or members in `path`, or `path` itself if it is a run without them."""
    parts = [part for pattern in (SEEDS, MEMBERS) for part in sorted(path.glob(pattern))]
    parts = [part for part in parts if is_run(part)]
    if parts:
        yield from parts
    elif is_run(path):
        yield path


def _directories(path: Path) -> list[Path]:
    return sorted(part for part in path.iterdir() if part.is_dir())


def stride(paths: Iterable[Path]) -> int:
    """Of how many lines one is kept, so that those of all runs stay below `MOST_LINES`. It is the
    same for all, because seeds are compared at the same steps."""
    files = (path / name for path in paths for name in (METRICS, EVALUATIONS))
    return max(1, -(-sum(map(_newlines, files)) // MOST_LINES))


def _newlines(path: Path) -> int:
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def any_name(name: str) -> bool:
    return "/" in name


def read_run(path: Path, every: int = 1, wanted: Callable[[str], bool] = any_name) -> Run:
    """`every`: see `stride`. `wanted`: names of the numbers that are kept."""
    check_directory(path)
    evals, absolute = _read_lines(path / EVALUATIONS, every, wanted)
    teams = opposing_teams(_some(evals))
    if teams:
        columns = without_sums(evals.columns)
        evals = replace(evals, columns=columns, last=without_sums(evals.last))
        absolute = None if absolute is None else without_sums(absolute)
    return Run(
        name=printable_path(path),
        path=path,
        config=dotted(read_yaml(path / CONFIG, "configuration", stored=True)),
        metrics=_read_lines(path / METRICS, every, wanted)[0],
        evals=evals,
        absolute=absolute,
        state=_state(path),
        together=is_member(path),
        teams=teams,
    )


def _some(lines: Lines) -> list[Line]:
    """At most `TELLING` lines of an old version's, from which it can be seen who plays against
    whom; the last one as it was written."""
    kept = np.linspace(0, len(lines.steps) - 1, min(len(lines.steps), TELLING)).astype(int)
    some = [{name: float(column[i]) for name, column in lines.columns.items()} for i in kept[:-1]]
    return [*some, lines.last] if lines.last else some


def _read_lines(path: Path, every: int, wanted: Callable[[str], bool]) -> tuple[Lines, Line | None]:
    """A file's lines, one at a time, and the last of the final scores among them. Damaged lines
    are left out, and one warning counts those that were looked at."""
    kept, absolute, last, count, damaged = _Columns(wanted), None, None, 0, 0
    for place, text in enumerate(_texts(path)):
        due = place % every == 0
        line = parsed_line(text, path.name) if due or b'"absolute"' in text else None
        if line is not None and "absolute" in line:
            absolute = line
            continue
        count += line is not None or not due
        damaged += due and line is None and text.endswith(b"\n")
        last = text
        if line is not None:
            kept.add(line)
    if damaged:
        warn_of_damage(path, damaged, "skipped")
    end = {} if last is None else parsed_line(last, path.name)  # torn: the last one before it
    end = kept.last if end is None else end
    if end and end is not kept.last and end != kept.last:
        kept.add(end)
    return Lines(*kept.arrays(), end, count), absolute


def _texts(path: Path) -> Iterator[bytes]:
    if path.exists():
        with path.open("rb") as file:
            yield from file


class _Columns:
    """Lines as they become columns."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted, self.last = wanted, Line()
        self._steps, self._columns = array("d"), dict[str, array]()
        self._unwanted: set[str] = set()

    def add(self, line: Line) -> None:
        place = len(self._steps)
        self._steps.append(line["steps"])
        for name, value in line.items():
            if name not in self._unwanted and (known := number(value)) is not None:
                self._put(name, place, known)
        self.last = line

    def _put(self, name: str, place: int, value: float) -> None:
        column = self._columns.get(name)
        if column is None:
            if name != "seconds" and not self._wanted(name):
                self._unwanted.add(name)
                return
            column = self._columns.setdefault(name, array("d"))
        if len(column) < place:
            column.extend([math.nan] * (place - len(column)))
        column.append(value)

    def arrays(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        size = len(self._steps)
        columns = {}
        for name, column in self._columns.items():
            column.extend([math.nan] * (size - len(column)))
            columns[name] = np.frombuffer(column)
        return np.array(self._steps).astype(np.int64), columns


def _state(path: Path) -> str:
    """How the run ended, from its summary, which is written last."""
    summary = read_json(path / SUMMARY)
    if "failed" in summary:
        return f"failed: {summary['failed']}"
    if "finished" not in summary or "updates" not in summary:
        return UNFINISHED
    return "finished" if summary["finished"] else f"stopped after update {summary['updates']}"


def dotted(config: dict[Any, Any]) -> dict[str, Any]:
    """`{"ppo": {"lr": 1}}` → `{"ppo.lr": 1}`; sections lie no deeper."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        inner = isinstance(value, dict)
        found |= {f"{key}.{name}": part for name, part in value.items()} if inner else {key: value}
    return {str(key): value for key, value in found.items()}


def printable_path(path: Path) -> str:
    """A name that can be printed and put into a page, whatever bytes it has on disk."""
    return str(path).encode(errors="replace").decode()
