"""A report as one self-contained HTML file."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jmarl.config.formatting import shown
from jmarl.presentation.pages import filled
from jmarl.reports.curves import Curve, Metric, curve, metrics_of
from jmarl.reports.data import Run
from jmarl.reports.groups import Final, Finals, Setting, WorldResults
from jmarl.reports.replays import Replayed

LIMIT = 5_000_000  # bytes of a page
CURVES_LIMIT = 2_000_000  # bytes of all curves
POINT = 45  # approximate bytes of a point
MOST_POINTS, FEWEST_POINTS = 600, 60  # per curve
MOST_SETTINGS = 100  # settings with curves
DIGITS = 6


def page(
    title: str,
    worlds: Sequence[WorldResults],
    replays: Sequence[Replayed],
    against: str = "steps",
    made: str = "",
) -> str:
    return filled("report.html", title, page_data(title, worlds, replays, against, made))


def page_data(
    title: str, worlds: Sequence[WorldResults], replays: Sequence[Replayed], against: str, made: str
) -> dict[str, Any]:
    """Everything that the page shows, as JSON-compatible data."""
    settings = [setting for world in worlds for setting in world.settings]
    runs = [run for setting in settings for run in setting.runs]
    metrics = metrics_of(runs)
    drawn = [setting for world in worlds for setting in world.settings[:MOST_SETTINGS]]
    points = points_of(len(drawn) * len(metrics))
    common = _common([setting.config for setting in settings])
    return {
        "title": title,
        "made": made,
        "against": against,
        "worlds": [
            {
                "name": world.name,
                "opponents": world.opponents,
                "over": world.over,
                "settings": [
                    _setting(setting, metrics if i < MOST_SETTINGS else [], points, common)
                    for i, setting in enumerate(world.settings)
                ],
            }
            for world in worlds
        ],
        "metrics": [metric._asdict() for metric in metrics],
        "common": {name: shown(value) for name, value in common.items()},
        "together": any(run.together for run in runs),
        "replays": [replayed._asdict() for replayed in replays],
    }


def points_of(curves: int) -> int:
    """Points per curve, such that all curves stay below `CURVES_LIMIT`."""
    fitting = CURVES_LIMIT // (POINT * max(1, curves))
    return max(FEWEST_POINTS, min(MOST_POINTS, fitting))


def _common(configs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Options that all configurations share; the page lists them once."""
    first = configs[0]
    return {
        name: value
        for name, value in first.items()
        if all(name in other and repr(other[name]) == repr(value) for other in configs)
    }


def _setting(
    setting: Setting, metrics: Sequence[Metric], points: int, common: dict[str, Any]
) -> dict[str, Any]:
    curves = {metric.key: curve(setting.runs, metric, points) for metric in metrics}
    return {
        "label": setting.label,
        "rank": setting.rank,
        "config": {k: shown(v) for k, v in setting.config.items() if k not in common},
        "finals": [_finals(one) for one in setting.finals],
        "runs": [_run(run) for run in setting.runs],
        "curves": {key: _points(one) for key, one in curves.items() if one is not None},
    }


def _finals(finals: Finals) -> dict[str, Any]:
    return {
        name: part._asdict() if isinstance(part, Final) else part
        for name, part in finals._asdict().items()
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "name": run.name,
        "seed": shown(run.seed),
        "state": run.state,
        "steps": run.steps,
        "budget": run.budget,
        "seconds": run.seconds,
        "evaluations": len(run.evals),
        "lines": len(run.metrics),
    }


def _points(one: Curve) -> dict[str, Any]:
    """The keys are short because they repeat for every curve."""
    with_interval = bool((one.seeds > 1).any())
    seeds = sorted(set(one.seeds.tolist()))
    return {
        "x": one.steps.tolist(),
        "s": _numbers(one.seconds),
        "y": _numbers(one.middle),
        "low": _numbers(one.low) if with_interval else None,
        "high": _numbers(one.high) if with_interval else None,
        "n": seeds[0] if len(seeds) == 1 else one.seeds.tolist(),
        "found": one.found,
    }


def _numbers(values: np.ndarray) -> list[float | None]:
    """JSON has no NaN; it becomes null."""
    return [float(f"{x:.{DIGITS}g}") if np.isfinite(x) else None for x in values]
