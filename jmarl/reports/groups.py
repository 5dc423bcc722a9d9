"""Runs that differ only in randomness are one setting; settings of one world are compared."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from jmarl.config.formatting import formatted, shown
from jmarl.config.known_options import OPTIONS
from jmarl.config.option_names import flat_applicable
from jmarl.config.stored import without_removed
from jmarl.ranking import Standing, ranked, training_progress
from jmarl.reports.data import Line, Run
from jmarl.reports.numbers import number
from jmarl.stats import interval, iqm

NAMED = 3  # most options that a setting's label names


class Final(NamedTuple):
    """Returns at the end, of the runs that went furthest."""

    iqm: float
    low: float | None  # None: a single run says nothing about others
    high: float | None
    mean: float
    runs: int
    steps: int


class Finals(NamedTuple):
    """Returns of a team. None: no evaluation yet, or nothing finite."""

    team: str  # its name among opponents; empty where all agents are one team
    greedy: Final | None
    sampled: Final | None
    best: Final | None  # the best parameters, scored anew at the end


@dataclass(frozen=True)
class Setting:
    """Runs of one configuration."""

    label: str
    config: dict[str, Any]
    runs: tuple[Run, ...]
    finals: tuple[Finals, ...]  # one, or one for each of the opposing teams
    rank: int | None  # from 1; between opponents there is none

    @property
    def greedy(self) -> Final | None:
        """What settings are ranked by; of opponents the first team's, which ranks nothing."""
        return self.finals[0].greedy

    @property
    def best_run(self) -> Run:
        return self.runs[ranked(_standing(run) for run in self.runs)[0]]


@dataclass(frozen=True)
class WorldResults:
    """What returns can be compared in: an environment with its options."""

    name: str
    opponents: bool  # teams against each other: no return says which setting is better
    over: str  # what interquartile means are over: "seeds" or "episodes"
    settings: tuple[Setting, ...]  # the best first


def compared(runs: Iterable[Run]) -> list[WorldResults]:
    worlds: dict[str, list[Run]] = {}
    for run in runs:
        worlds.setdefault(_world(run.config), []).append(run)
    return [_compared(name, own) for name, own in worlds.items()]


def _world(config: dict[str, Any]) -> str:
    name = str(config.get("env", "unknown world"))
    prefix = "env_options."
    options = {k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)}
    return f"{name} ({formatted(options)})" if options else name


def _compared(name: str, runs: list[Run]) -> WorldResults:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(repr(sorted(_own(run.config).items(), key=str)), []).append(run)
    members = list(groups.values())
    teams = tuple(dict.fromkeys(team for run in runs for team in run.teams))
    # what is over episodes cannot be compared with what is over seeds: of one kind in all settings
    over = "seeds" if len(runs) > len(members) else "episodes"
    labels = _labels(members)
    pairs = zip(labels, members, strict=True)
    settings = [_setting(label, each, over, teams) for label, each in pairs]
    if not teams:
        order = ranked(_setting_standing(setting) for setting in settings)
        settings = [_placed(settings[i], place) for place, i in enumerate(order, start=1)]
    return WorldResults(name, bool(teams), over, tuple(settings))


def _own(config: dict[str, Any]) -> dict[str, Any]:
    """The options that can change what is learned. Names that are not options are kept."""
    used = without_removed(flat_applicable(config))
    return {
        name: value for name, value in used.items() if name not in OPTIONS or OPTIONS[name].learning
    }


def _setting(label: str, runs: Sequence[Run], over: str, teams: Sequence[str]) -> Setting:
    finals = tuple(_finals(runs, over, team) for team in teams or [""])
    return Setting(label, _own(runs[0].config), tuple(runs), finals, rank=None)


def _finals(runs: Sequence[Run], over: str, team: str) -> Finals:
    last, absolute = [_last(run) for run in runs], [run.absolute or {} for run in runs]
    given = (over, f"/{team}" if team else "")
    return Finals(
        team=team,
        greedy=final(last, "eval", *given),
        sampled=final(last, "eval_sampled", *given),
        best=final(absolute, "absolute", *given),
    )


def _placed(setting: Setting, place: int) -> Setting:
    return replace(setting, rank=None if setting.greedy is None else place)


def _setting_standing(setting: Setting) -> Standing:
    final = setting.greedy
    if final is None:
        return Standing(math.nan)
    progress = training_progress(final.steps, setting.runs[0].budget)
    failed = any(_score(_last(run), "eval") is None for run in setting.runs)
    score = final.iqm if final.runs > 1 else final.mean  # as sweeps rank a single seed
    return Standing(score, progress, failed)


def _standing(run: Run) -> Standing:
    score = _score(_last(run), "eval")
    return Standing(math.nan if score is None else score, training_progress(run.steps, run.budget))


def _last(run: Run) -> Line:
    return run.evals.last


def _score(line: Line, prefix: str, team: str = "") -> float | None:
    """None of a run that failed: its returns may be finite, but mean nothing."""
    return None if "failed" in line else number(line.get(f"{prefix}/return_mean{team}"))


def final(lines: Sequence[Line], prefix: str, over: str, team: str = "") -> Final | None:
    """The interquartile mean over the seeds that went furthest, and how sure it is; or of a single
    run over its episodes. `team`: what the names of returns end with."""
    whole = [(line, score) for line in lines if (score := _score(line, prefix, team)) is not None]
    if not whole:
        return None
    steps = max(line["steps"] for line, _ in whole)
    counted = [(line, score) for line, score in whole if line["steps"] == steps]
    scores = np.array([score for _, score in counted])
    mean = float(scores.mean())
    if over == "seeds":
        low, high = map(float, interval(scores)) if len(counted) > 1 else (None, None)
        return Final(float(iqm(scores)), low, high, mean, len(counted), steps)
    line = counted[0][0]
    parts = (f"{prefix}/return_{part}{team}" for part in ("iqm", "iqm_low", "iqm_high"))
    middle, low, high = (number(line.get(name)) for name in parts)
    return Final(mean if middle is None else middle, low, high, mean, 1, steps)


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
        formatted = len(names) <= NAMED or group[0].swept
        labels.append(", ".join([str(algorithm), *parts]) if formatted else group[0].directory)
    return [
        label if labels.count(label) == 1 else f"{label} ({group[0].name})"
        for label, group in zip(labels, groups, strict=True)
    ]


def differing(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Options that are not the same in all, in the order of the first."""
    names = dict.fromkeys(name for config in configs for name in config)
    return [name for name in names if len({repr(config.get(name)) for config in configs}) > 1]
