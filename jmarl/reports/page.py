"""A report as one HTML file that needs nothing else."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jmarl.config.formatting import shown
from jmarl.presentation.pages import filled
from jmarl.reports.curves import Curve, Metric, curve, metrics_of
from jmarl.reports.data import Run
from jmarl.reports.groups import Final, Setting, World
from jmarl.reports.replays import Replayed

LIMIT = 5_000_000  # bytes of a page
CURVES_LIMIT = 2_000_000  # of these for curves
POINT = 45  # bytes of one, about
MOST_POINTS, FEWEST_POINTS = 600, 60  # of a curve
MOST_SETTINGS = 100  # of which curves are kept
DIGITS = 6


def page(
    title: str,
    worlds: Sequence[World],
    replays: Sequence[Replayed],
    against: str = "steps",
    made: str = "",
) -> str:
    return filled("report.html", title, described(title, worlds, replays, against, made))


def described(
    title: str, worlds: Sequence[World], replays: Sequence[Replayed], against: str, made: str
) -> dict[str, Any]:
    """Everything that the page shows, as plain data."""
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
    """Of each curve, such that all together stay below their part of the page."""
    fitting = CURVES_LIMIT // (POINT * max(1, curves))
    return max(FEWEST_POINTS, min(MOST_POINTS, fitting))


def _common(configs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Options that are the same everywhere: told once."""
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
        "greedy": _final(setting.greedy),
        "sampled": _final(setting.sampled),
        "best": _final(setting.best),
        "runs": [_run(run) for run in setting.runs],
        "curves": {key: _points(one) for key, one in curves.items() if one is not None},
    }


def _final(final: Final | None) -> dict[str, Any] | None:
    return None if final is None else final._asdict()


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
    """Names are short: they come a thousand times."""
    several = bool((one.seeds > 1).any())
    seeds = sorted(set(one.seeds.tolist()))
    return {
        "x": one.steps.tolist(),
        "s": _numbers(one.seconds),
        "y": _numbers(one.middle),
        "low": _numbers(one.low) if several else None,
        "high": _numbers(one.high) if several else None,
        "n": seeds[0] if len(seeds) == 1 else one.seeds.tolist(),
        "found": one.found,
    }


def _numbers(values: np.ndarray) -> list[float | None]:
    """NaN, which JSON has not, becomes null."""
    return [float(f"{x:.{DIGITS}g}") if np.isfinite(x) else None for x in values]
