"""Figures over the course of training: over seeds, and thinned where there are too many to draw."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jmarl.reports.data import Run, number
from jmarl.stats import bootstrap_intervals, iqm

KEPT = 4  # points of a stretch: least and most of the middle, the lowest seed's and the highest's
KEPT_ALONE = 2  # of a single seed they coincide


class Metric(NamedTuple):
    """A figure of which curves are drawn."""

    key: str  # in the lines
    title: str
    about: str
    section: str
    source: str  # of a run: "evals" or "metrics"


RETURNS, LEARNING, MORE = "Returns and speed", "Learning", "More"
PARTS = "Returns by team and agent"
METRICS = (
    Metric("eval/return_mean", "Greedy return", "likeliest actions", RETURNS, "evals"),
    Metric("eval_sampled/return_mean", "Sampled return", "actions drawn", RETURNS, "evals"),
    Metric("eval/win_rate", "Greedy win rate", "likeliest actions", RETURNS, "evals"),
    Metric("charts/SPS", "Steps per second", "mean since the start", RETURNS, "metrics"),
    Metric("losses/policy_loss", "Policy loss", "", LEARNING, "metrics"),
    Metric("losses/value_loss", "Value loss", "", LEARNING, "metrics"),
    Metric("losses/entropy", "Entropy", "of actions, in nats", LEARNING, "metrics"),
    Metric("losses/approx_kl", "KL divergence", "old to new policy", LEARNING, "metrics"),
    Metric("losses/clipfrac", "Clip fraction", "ratios beyond 1 ± ε", LEARNING, "metrics"),
    Metric(
        "losses/explained_variance", "Explained variance", "of returns; 1: all", LEARNING, "metrics"
    ),
    Metric("train/reward", "Training reward", "of a step", MORE, "metrics"),
    Metric("losses/grad_norm", "Gradient norm", "before clipping", MORE, "metrics"),
    Metric("charts/learning_rate", "Learning rate", "", MORE, "metrics"),
)


class Curve(NamedTuple):
    """All `[points]`. Intervals are of points with several seeds; elsewhere NaN."""

    steps: np.ndarray
    seconds: np.ndarray  # of training, mean over seeds; NaN: unknown
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: np.ndarray  # that got there
    found: int  # points before thinning


def metrics_of(runs: Sequence[Run]) -> list[Metric]:
    """Those that some run has, and returns by team and agent."""
    seen = {
        source: {key for run in runs for line in getattr(run, source) for key in line}
        for source in ("evals", "metrics")
    }
    listed = [metric for metric in METRICS if metric.key in seen[metric.source]]
    prefix = "eval/return_mean/"
    parts = dict.fromkeys(
        key for run in runs for line in run.evals for key in line if key.startswith(prefix)
    )
    own = [Metric(key, key.removeprefix(prefix), "greedy", PARTS, "evals") for key in parts]
    return listed + own


def curve(runs: Iterable[Run], metric: Metric, points: int) -> Curve | None:
    """The interquartile mean over seeds with its interval, at most `points` of it. None: nothing
    finite was written."""
    found: dict[int, list[tuple[float, float]]] = {}
    for run in runs:
        for steps, figures in _figures(run, metric).items():
            found.setdefault(steps, []).append(figures)
    if not found:
        return None
    places = sorted(found)
    samples = [np.array([value for value, _ in found[steps]]) for steps in places]
    kept = thinned(samples, points)
    samples = [samples[i] for i in kept]
    low, high = _each(samples, _interval)
    return Curve(
        steps=np.array(places)[kept],
        seconds=np.array([np.mean([s for _, s in found[places[i]]]) for i in kept]),
        middle=_each(samples, iqm),
        low=low,
        high=high,
        seeds=np.array([sample.size for sample in samples]),
        found=len(places),
    )


def _figures(run: Run, metric: Metric) -> dict[int, tuple[float, float]]:
    """Value and seconds at each count of steps."""
    found = {}
    for line in getattr(run, metric.source):
        value, seconds = number(line.get(metric.key)), number(line.get("seconds"))
        if value is not None:
            found[line["steps"]] = (value, np.nan if seconds is None else seconds)
    return found


def thinned(samples: Sequence[np.ndarray], points: int) -> np.ndarray:
    """Which points are drawn: all of a few; of many the first, the last, and of equally long
    stretches those where the middle, the lowest or the highest seed is at an extreme."""
    count = len(samples)
    if count <= points:
        return np.arange(count)
    middle, lowest, highest = _each(samples, lambda x: np.stack([iqm(x), x.min(-1), x.max(-1)]))
    each = KEPT if any(sample.size > 1 for sample in samples) else KEPT_ALONE
    ends = np.linspace(0, count, max(1, (points - 2) // each) + 1).astype(int)
    kept = {0, count - 1}
    for part in map(np.arange, ends, ends[1:]):
        least = [middle[part].argmin(), lowest[part].argmin()]
        most = [middle[part].argmax(), highest[part].argmax()]
        kept.update(part[least + most].tolist())
    return np.array(sorted(kept))


def _interval(samples: np.ndarray) -> np.ndarray:
    """`[2, points]` of samples `[points, seeds]`; one seed has none."""
    if samples.shape[-1] == 1:
        return np.full((2, len(samples)), np.nan)
    return np.stack(bootstrap_intervals(samples))


def _each(samples: Sequence[np.ndarray], figure: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """`figure` `[…, points]` of samples that may have unlike sizes, computed for equal ones at
    once."""
    sizes = np.array([sample.size for sample in samples])
    groups = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
    parts = [figure(np.stack([samples[i] for i in at.tolist()])) for at in groups]
    return np.concatenate(parts, axis=-1)[..., np.argsort(np.concatenate(groups))]
