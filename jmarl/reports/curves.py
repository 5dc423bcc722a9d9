"""Learning curves: metrics over seeds, thinned where there are too many points to draw."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jmarl.reports.data import Run
from jmarl.stats import interval, iqm

# Points per stretch: where the IQM is lowest and highest, the lowest seed lowest and the highest
# seed highest. With a single seed these are two.
KEPT, KEPT_ALONE = 4, 2


class Metric(NamedTuple):
    """A metric with a curve in the report."""

    key: str  # its name in the run's files
    title: str
    about: str
    section: str
    source: str  # the attribute of a run: "evals" or "metrics"


RETURNS, LEARNING, MORE = "Returns and speed", "Learning", "More"
PARTS = "Returns by team and agent"
BY_PART = "eval/return_mean/"
METRICS = (
    Metric("eval/return_mean", "Greedy return", "most likely actions", RETURNS, "evals"),
    Metric("eval_sampled/return_mean", "Sampled return", "sampled actions", RETURNS, "evals"),
    Metric("eval/win_rate", "Greedy win rate", "most likely actions", RETURNS, "evals"),
    Metric("charts/SPS", "Steps per second", "mean since the start", RETURNS, "metrics"),
    Metric("losses/policy_loss", "Policy loss", "", LEARNING, "metrics"),
    Metric("losses/value_loss", "Value loss", "", LEARNING, "metrics"),
    Metric("losses/entropy", "Entropy", "of actions, in nats", LEARNING, "metrics"),
    Metric("losses/approx_kl", "KL divergence", "old to new policy", LEARNING, "metrics"),
    Metric("losses/clipfrac", "Clip fraction", "ratios outside 1 ± ε", LEARNING, "metrics"),
    Metric("losses/explained_variance", "Explained variance", "at most 1", LEARNING, "metrics"),
    Metric("train/reward", "Training reward", "per step", MORE, "metrics"),
    Metric("train/episode_return", "Training return", "of ended episodes", MORE, "metrics"),
    Metric("losses/grad_norm", "Gradient norm", "before clipping", MORE, "metrics"),
    Metric("charts/learning_rate", "Learning rate", "", MORE, "metrics"),
)


KEYS = {metric.key for metric in METRICS}


def drawn(name: str) -> bool:
    """Whether a curve of this name may be in the report."""
    return name in KEYS or name.startswith(BY_PART)


class Curve(NamedTuple):
    """Arrays `[points]`. Intervals are NaN at points with a single seed."""

    steps: np.ndarray
    seconds: np.ndarray  # of training, mean over seeds; NaN: unknown
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: np.ndarray  # number of seeds that reached the point
    found: int  # number of points before thinning


def metrics_of(runs: Sequence[Run]) -> list[Metric]:
    """The metrics that some run has, and its returns by team and agent."""
    keys = {
        source: {key for run in runs for key in getattr(run, source).columns}
        for source in ("evals", "metrics")
    }
    listed = [metric for metric in METRICS if metric.key in keys[metric.source]]
    columns = dict.fromkeys(key for run in runs for key in run.evals.columns)
    return listed + [
        Metric(key, key.removeprefix(BY_PART), "greedy", PARTS, "evals")
        for key in columns
        if key.startswith(BY_PART)
    ]


class Samples(NamedTuple):
    """The values of all seeds at every point, one point after the other."""

    values: np.ndarray
    starts: np.ndarray  # [points]
    sizes: np.ndarray  # [points]

    def at(self, points: np.ndarray) -> "Samples":
        return self._replace(starts=self.starts[points], sizes=self.sizes[points])


def curve(runs: Iterable[Run], metric: Metric, points: int) -> Curve | None:
    """The interquartile mean over seeds with its interval, thinned to about `points`. None if the
    runs have no finite value of the metric."""
    figures = [_figures(run, metric) for run in runs]
    steps, values, seconds = map(np.concatenate, zip(*figures, strict=True))
    if not steps.size:
        return None
    order = np.argsort(steps, kind="stable")
    places, starts, sizes = np.unique(steps[order], return_index=True, return_counts=True)
    every = Samples(values[order], starts, sizes)
    kept = thinned(every, points)
    samples = every.at(kept)
    low, high = _each(samples, lambda x: np.stack(interval(x)))
    return Curve(
        steps=places[kept],
        seconds=_each(samples._replace(values=seconds[order]), lambda x: x.mean(-1)),
        middle=_each(samples, iqm),
        low=low,
        high=high,
        seeds=samples.sizes,
        found=len(places),
    )


def _figures(run: Run, metric: Metric) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps, values and seconds where the metric is known; of equal steps the last."""
    lines = getattr(run, metric.source)
    unknown = np.full(len(lines.steps), np.nan)
    values = lines.columns.get(metric.key, unknown)
    known = np.flatnonzero(~np.isnan(values))[::-1]
    known = known[np.unique(lines.steps[known], return_index=True)[1]]
    seconds = lines.columns.get("seconds", unknown)
    return lines.steps[known], values[known], seconds[known]


def thinned(samples: Samples, points: int) -> np.ndarray:
    """The indices of the points to draw. At most `points`: all. More: the first, the last, and from
    stretches of equal length those at which the IQM, the lowest or the highest seed is extreme."""
    count = len(samples.sizes)
    if count <= points:
        return np.arange(count)
    middle, lowest, highest = _each(samples, lambda x: np.stack([iqm(x), x.min(-1), x.max(-1)]))
    each = KEPT if (samples.sizes > 1).any() else KEPT_ALONE
    ends = np.linspace(0, count, max(1, (points - 2) // each) + 1).astype(int)
    kept = {0, count - 1}
    for stretch in map(np.arange, ends, ends[1:]):
        least = [middle[stretch].argmin(), lowest[stretch].argmin()]
        most = [middle[stretch].argmax(), highest[stretch].argmax()]
        kept.update(stretch[least + most].tolist())
    return np.array(sorted(kept))


def _each(samples: Samples, figure: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """`figure` `[…, points]` of samples of different sizes, computed in one batch per size."""
    sizes = np.unique(samples.sizes).tolist()
    groups = [np.flatnonzero(samples.sizes == size) for size in sizes]
    parts = [
        figure(samples.values[samples.starts[at, None] + np.arange(size)])
        for at, size in zip(groups, sizes, strict=True)
    ]
    return np.concatenate(parts, axis=-1)[..., np.argsort(np.concatenate(groups))]
