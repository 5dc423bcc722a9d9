"""Lines of several members as one, and the score by which checkpoints compare."""

import numpy as np

from jmarl.envs.base import EnvSpec
from jmarl.learning.episodes import team_suffixes
from jmarl.runs.history import Entry
from jmarl.stats import interval, iqm


def score_of(spec: EnvSpec, evaluated: Entry, update: int) -> float:
    """The greedy return. Between opposing teams no return says who is better, so the latest
    parameters are the best."""
    return evaluated["eval/return_mean"] if spec.cooperative else float(update)


def overall(entries: list[Entry]) -> Entry:
    """Means over the members that have not failed, and how many have."""
    first, whole = entries[0], [entry for entry in entries if "failed" not in entry]
    if len(entries) == 1:
        return first
    means = {k: _mean_of_known([e[k] for e in whole or entries]) for k in first if "/" in k}
    failed = len(entries) - len(whole)
    counted = {"members/failed": failed} if failed else {}
    about = {k: v for k, v in first.items() if k != "failed"}
    return about | means | counted | {"member": None}


def spread(spec: EnvSpec, entries: list[Entry]) -> Entry:
    """Over the members that have not failed: the interquartile mean of greedy returns with its
    interval, and the best return; of opposing teams each for itself."""
    figures: Entry = {}
    for team in team_suffixes(spec):
        returns = [e[f"eval/return_mean{team}"] for e in entries if "failed" not in e]
        known = np.array([x for x in returns if np.isfinite(x)])
        if known.size:
            low, high = interval(known)
            figures[f"members/return_iqm{team}"] = float(iqm(known))
            figures[f"members/return_iqm_low{team}"] = float(low)
            figures[f"members/return_iqm_high{team}"] = float(high)
            figures[f"members/return_best{team}"] = float(known.max())
    return figures


def _mean_of_known(values: list[float]) -> float:
    """NaN: not known, such as a return where no episode has ended."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")
