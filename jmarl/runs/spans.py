"""Means of metrics over the updates since the last line."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jmarl.learning.episode_returns import NAME as EPISODE_RETURN


class Span:
    """Sums in double precision, an update at a time, so that neither memory nor the result depends
    on where training pauses. Checkpoints hold them: a resumed run writes the line that it would
    have written without a pause."""

    def __init__(self, only_finite: bool, stored: dict[str, Any] | None = None) -> None:
        """`only_finite`: numbers that are not are left out. `stored`: by an earlier process."""
        self._only_finite = only_finite
        self._totals = _arrays((stored or {}).get("totals", {}))  # [A] of every metric
        self._counts = _arrays((stored or {}).get("counts", {}))

    def add(self, updates: dict[str, np.ndarray]) -> None:
        """Metrics `[updates, A]`."""
        for name, values in updates.items():
            total = self._totals.setdefault(name, np.zeros(values.shape[1]))
            count = self._counts.setdefault(name, np.zeros(values.shape[1]))
            known = self._known(name)(values)
            for row, counted in zip(values, known, strict=True):
                total[counted] += row[counted]
                count += counted

    def means(self) -> list[dict[str, float]]:
        """Of every member. NaN where nothing was known. The next span begins."""
        totals, counts = self._totals, self._counts
        self._totals, self._counts = {}, {}
        with np.errstate(invalid="ignore"):
            means = {name: totals[name] / counts[name] for name in totals}
        members = len(next(iter(means.values())))
        return [{name: float(mean[i]) for name, mean in means.items()} for i in range(members)]

    def stored(self) -> dict[str, Any]:
        """For a checkpoint. Empty after a line."""
        parts = {"totals": self._totals, "counts": self._counts}
        return {key: {n: x.tolist() for n, x in part.items()} for key, part in parts.items()}

    def _known(self, name: str) -> Callable[[np.ndarray], np.ndarray]:
        """Which numbers count. In a rollout in which no episode ended there is no return."""
        if self._only_finite or name.startswith(EPISODE_RETURN):
            return np.isfinite
        return _all


def _all(values: np.ndarray) -> np.ndarray:
    return np.ones(values.shape, bool)


def _arrays(stored: dict[str, list[float]]) -> dict[str, np.ndarray]:
    return {name: np.array(values) for name, values in stored.items()}
