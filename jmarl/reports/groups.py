"""Runs that differ in nothing but chance are one setting; settings of one world are compared."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from jmarl.config.formatting import shown, told
from jmarl.reports.data import Line, Run, number
from jmarl.stats import bootstrap_interval, iqm

# Options that change nothing of what is learned.
CHANCE = frozenset({"seed", "seeds", "run_dir", "resume", "quiet", "tensorboard", "wandb"}) | {
    *("compilation_cache", "members_per_batch", "devices", "keep_checkpoints", "checkpoint_every"),
}
NAMED = 3  # most options that a setting's label names
ALL_AGENTS = "return_mean"


class Final(NamedTuple):
    """Returns at the end, of the runs that went furthest."""

    iqm: float
    low: float | None  # None: a single run says nothing about others
    high: float | None
    mean: float
    runs: int
    steps: int


@dataclass(frozen=True)
class Setting:
    """Runs of one configuration."""

    label: str
    config: dict[str, Any]
    runs: tuple[Run, ...]
    greedy: Final | None  # None: no evaluation yet, or nothing finite
    sampled: Final | None
    best: Final | None  # the best parameters, scored anew at the end
    rank: int | None  # from 1; between opponents there is none

    @property
    def best_run(self) -> Run:
        """By its last greedy return, or what comes nearest to having one."""

        def quality(run: Run) -> tuple[int, float]:
            score = _score(_last(run), "eval")
            return run.steps, -math.inf if score is None else score

        return max(self.runs, key=quality)


@dataclass(frozen=True)
class World:
    """What returns can be compared in: an environment with its options."""

    name: str
    opponents: bool  # teams against each other: the sum of returns says nothing
    over: str  # what interquartile means are over: "seeds" or "episodes"
    settings: tuple[Setting, ...]  # the best first


def compared(runs: Iterable[Run]) -> list[World]:
    worlds: dict[str, list[Run]] = {}
    for run in runs:
        worlds.setdefault(_world(run.config), []).append(run)
    return [_compared(name, own) for name, own in worlds.items()]


def _world(config: dict[str, Any]) -> str:
    name = str(config.get("env", "unknown world"))
    prefix = "env_options."
    options = {k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)}
    return f"{name} ({told(options)})" if options else name


def _compared(name: str, runs: list[Run]) -> World:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(repr(sorted(_own(run.config).items(), key=str)), []).append(run)
    members = list(groups.values())
    opponents = any(_teams(line) for run in runs for line in run.evals[-1:])
    # what is over episodes cannot be compared with what is over seeds: of one kind in all settings
    over = "seeds" if len(runs) > len(members) else "episodes"
    labels = _labels(members)
    settings = [_setting(label, each, over) for label, each in zip(labels, members, strict=True)]
    if not opponents:
        settings.sort(key=_order)
        settings = [_ranked(setting, place) for place, setting in enumerate(settings, start=1)]
    return World(name, opponents, over, tuple(settings))


def _own(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in CHANCE}


def _teams(line: Line) -> list[str]:
    """Names of teams, which stand beside agents' where there are several. Agents are numbered."""
    parts = [key.rpartition("/") for key in line]
    names = [name for before, _, name in parts if before == f"eval/{ALL_AGENTS}"]
    return [name for name in names if not name[-1:].isdigit()]


def _setting(label: str, runs: Sequence[Run], over: str) -> Setting:
    last = [_last(run) for run in runs]
    absolute = [run.absolute or {} for run in runs]
    return Setting(
        label=label,
        config=_own(runs[0].config),
        runs=tuple(runs),
        greedy=final(last, "eval", over),
        sampled=final(last, "eval_sampled", over),
        best=final(absolute, "absolute", over),
        rank=None,
    )


def _ranked(setting: Setting, place: int) -> Setting:
    return replace(setting, rank=None if setting.greedy is None else place)


def _order(setting: Setting) -> tuple[Any, ...]:
    """As sweeps are ranked: better is what went further through its budget; of that, what failed
    with no seed; of that, what has the larger interquartile mean."""
    if setting.greedy is None:
        return (True, 0.0, False, 0.0)
    scored = sum(_score(_last(run), "eval") is not None for run in setting.runs)
    return (False, -_progress(setting), scored < len(setting.runs), -setting.greedy.iqm)


def _progress(setting: Setting) -> float:
    """Part of the budget; one digit, as budgets are whole updates."""
    budget, final = setting.runs[0].budget, setting.greedy
    return float(f"{final.steps / budget:.1g}") if budget and final is not None else 0.0


def _last(run: Run) -> Line:
    return run.evals[-1] if run.evals else {}


def _score(line: Line, prefix: str) -> float | None:
    return number(line.get(f"{prefix}/{ALL_AGENTS}"))


def final(lines: Sequence[Line], prefix: str, over: str) -> Final | None:
    """The interquartile mean over the seeds that went furthest, and how sure it is; or of a single
    run over its episodes."""
    whole = [(line, score) for line in lines if (score := _score(line, prefix)) is not None]
    if not whole:
        return None
    steps = max(line["steps"] for line, _ in whole)
    counted = [(line, score) for line, score in whole if line["steps"] == steps]
    scores = np.array([score for _, score in counted])
    mean = float(scores.mean())
    if over == "seeds":
        low, high = bootstrap_interval(scores) if len(counted) > 1 else (None, None)
        return Final(float(iqm(scores)), low, high, mean, len(counted), steps)
    line = counted[0][0]
    names = [f"{prefix}/return_{part}" for part in ("iqm", "iqm_low", "iqm_high")]
    middle, low, high = (
        mean if (part := number(line.get(name))) is None else part for name in names
    )
    return Final(middle, low, high, mean, 1, steps)


def _labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """The algorithm, and what differs among settings of the same; where that is too much, and was
    not swept on purpose, the directory's name. No two are alike."""
    configs = [_own(group[0].config) for group in groups]
    labels = []
    for group, config in zip(groups, configs, strict=True):
        algorithm = config.get("algorithm")
        alike = [other for other in configs if other.get("algorithm") == algorithm]
        names = differing(alike)
        parts = [f"{name.rpartition('.')[2]}={shown(config.get(name))}" for name in names]
        told = len(names) <= NAMED or group[0].swept
        labels.append(", ".join([str(algorithm), *parts]) if told else group[0].directory)
    return [
        label if labels.count(label) == 1 else f"{label} ({group[0].name})"
        for label, group in zip(labels, groups, strict=True)
    ]


def differing(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Options that are not the same in all, in the order of the first."""
    names = dict.fromkeys(name for config in configs for name in config)
    return [name for name in names if len({repr(config.get(name)) for config in configs}) > 1]
