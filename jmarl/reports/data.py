"""Runs as they lie on disk, finished or not: what reports are made from."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jmarl.config.train_config import read_preset
from jmarl.errors import ConfigError
from jmarl.runs.files import CONFIG, EVALUATIONS, MEMBER, METRICS, SUMMARY
from jmarl.runs.logs import read_lines

SEEDS, MEMBERS = "seed_*", "member_*"  # directories of runs that were trained together
UNFINISHED = "unfinished: still running, or cut short"

Line = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One seed of one configuration. Lines are in the order in which they were written."""

    name: str  # as it was given
    path: Path
    config: dict[str, Any]  # by full name, `ppo.lr`
    metrics: tuple[Line, ...]
    evals: tuple[Line, ...]
    absolute: Line | None  # the best parameters, scored at the end
    state: str  # how it ended
    together: bool  # trained side by side with others, so that they share a clock

    @property
    def seed(self) -> Any:
        return self.config.get("seed")

    @property
    def directory(self) -> str:
        """Its name; of one of several seeds, theirs."""
        path = self.path.resolve()
        one_of_many = self.together and path.match(SEEDS)
        return told_path(path.parent if one_of_many else path).rpartition("/")[2]

    @property
    def swept(self) -> bool:
        return self.path.resolve().match(MEMBERS)

    @property
    def seconds(self) -> float:
        """Of training."""
        known = (number(line.get("seconds")) for line in (*self.metrics[-1:], *self.evals[-1:]))
        return max((value for value in known if value is not None), default=0.0)

    @property
    def empty(self) -> bool:
        return not self.metrics and not self.evals

    @property
    def steps(self) -> int:
        """That figures tell of."""
        return max((line["steps"] for line in (*self.metrics, *self.evals)), default=0)

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
            raise ConfigError(f"there is no directory {told_path(path)!r}.")
        own = list(_runs_in(path)) or [run for part in _directories(path) for run in _runs_in(part)]
        if not own:
            raise ConfigError(
                f"{told_path(path)!r} is not a run: it has no {CONFIG}, and nor has any directory "
                "in it."
            )
        for run in own:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _runs_in(path: Path) -> Iterator[Path]:
    """Its parts, if it has some; a run without any is its own only one."""
    parts = [part for pattern in (SEEDS, MEMBERS) for part in sorted(path.glob(pattern))]
    parts = [part for part in parts if (part / CONFIG).is_file()]
    if parts:
        yield from parts
    elif (path / CONFIG).is_file():
        yield path


def _directories(path: Path) -> list[Path]:
    return sorted(part for part in path.iterdir() if part.is_dir())


def read_run(path: Path) -> Run:
    evals = _whole(read_lines(path / EVALUATIONS))
    absolute = [line for line in evals if "absolute" in line]
    return Run(
        name=told_path(path),
        path=path,
        config=flat(read_preset(path / CONFIG)),
        metrics=tuple(_whole(read_lines(path / METRICS))),
        evals=tuple(line for line in evals if "absolute" not in line),
        absolute=absolute[-1] if absolute else None,
        state=_state(path),
        together=(path / MEMBER).is_file(),
    )


def _whole(lines: Iterable[Any]) -> list[Line]:
    """Those that say when they were written."""
    return [x for x in lines if isinstance(x, dict) and number(x.get("steps")) is not None]


def number(value: Any) -> float | None:
    """A figure, if it is one: JSON's null stands for NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _state(path: Path) -> str:
    """From its summary, which is written last."""
    try:
        summary = json.loads((path / SUMMARY).read_text(encoding="utf-8", errors="replace"))
        if "failed" in summary:
            return f"failed: {summary['failed']}"
        after = f"stopped after update {summary['updates']}"
        return "finished" if summary["finished"] else after
    except (OSError, ValueError, KeyError, TypeError):
        return UNFINISHED


def flat(config: dict[Any, Any]) -> dict[str, Any]:
    """`{"ppo": {"lr": 1}}` → `{"ppo.lr": 1}`; sections lie no deeper."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        inner = isinstance(value, dict)
        found |= {f"{key}.{name}": part for name, part in value.items()} if inner else {key: value}
    return {str(key): value for key, value in found.items()}


def told_path(path: Path) -> str:
    """A name that can be printed and put into a page, whatever bytes it has on disk."""
    return str(path).encode(errors="replace").decode()
