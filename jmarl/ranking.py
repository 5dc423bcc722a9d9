"""Who is better: the one rule by which sweeps, their schedulers and reports rank."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from jmarl.stats import iqm


class Standing(NamedTuple):
    """What a setting, a run or a member of a sweep is ranked by."""

    score: float  # greedy return, of several seeds their IQM; NaN: it failed, or was not evaluated
    progress: float = 1.0  # see `training_progress`
    failed: bool = False  # in some of its seeds


def standing(scores: Iterable[float], progress: float = 1.0) -> Standing:
    """Of a setting whose seeds have these scores, which are not finite where they failed."""
    every = np.array(list(scores), float)
    whole = every[np.isfinite(every)]
    score = float(iqm(whole)) if whole.size else math.nan
    return Standing(score, progress, whole.size < every.size)


def ranked(standings: Iterable[Standing]) -> list[int]:
    """Indices, the best first. Ranked by training progress, then by whether every seed trained to
    the end, then by score. What has no score comes last; equals stay in order."""

    def key(one: Standing) -> tuple[bool, float, bool, float]:
        unscored = math.isnan(one.score)
        return unscored, -one.progress, one.failed, 0.0 if unscored else -one.score

    keys = [key(one) for one in standings]
    return sorted(range(len(keys)), key=keys.__getitem__)


def training_progress(steps: int, budget: int | None) -> float:
    """The part of the budget that was trained, to one digit: halving stops after whole updates, so
    that one rung is not quite the same part of every budget."""
    return float(f"{steps / budget:.1g}") if budget else 0.0
