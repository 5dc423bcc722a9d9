"""Which members train on: successive halving, and exploitation within a population."""

import math
from collections.abc import Mapping

import numpy as np

from jmarl.config.option_names import limit
from jmarl.ranking import Standing, ranked, standing


def rung_updates(total: int, rungs: int, factor: int) -> list[int]:
    """Updates after which halving selects: total/factorᵏ for k = rungs … 1, without those below 1.
    Jamieson & Talwalkar 2016."""
    return sorted({total // factor**k for k in range(1, rungs + 1)} - {0})


def survivors(scores: np.ndarray, settings: np.ndarray, factor: int) -> np.ndarray:
    """Indices of the members that train on: all seeds of the best ⌈S/factor⌉ of S settings, by the
    final ranking's rule. `settings` `[M]`: whose seed a member is. `scores` `[M]`, NaN: it failed.

    Among equal settings single seeds that survive are the lucky ones; whole settings are less so.
    """
    names = np.unique(settings)
    best = ranked(standing(scores[settings == name]) for name in names)
    kept = names[best[: math.ceil(len(names) / factor)]]
    return np.flatnonzero(np.isin(settings, kept))


def exploit_and_explore(
    scores: np.ndarray,
    hyper: dict[str, np.ndarray],
    names: Mapping[str, str],
    seed: int,
    update: int,
    fraction: float,
    factor: float,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Truncation selection: each of the worst `fraction` becomes a copy of a random one of the best
    `fraction`, and its hyperparameters `names` are multiplied by `factor` or 1/`factor`. Returns
    whom each member copies (most copy themselves) and the new hyperparameters, all `[M]`. Jaderberg
    et al. 2017.
    `names`: those of hyperparameters (`lr`), with those of their options (`ppo.lr`)."""
    size = len(scores)
    rng = np.random.default_rng([seed, update])
    order, source = _best_first(scores), np.arange(size)
    moved = min(max(1, round(fraction * size)), size // 2)
    best = [i for i in order[:moved] if not np.isnan(scores[i])]
    if not best:  # all failed
        return source, {name: _floats(values) for name, values in hyper.items()}
    worst = order[size - moved :]
    source[worst] = rng.choice(best, size=moved)
    changed = {name: _floats(values)[source] for name, values in hyper.items()}
    for name, option in names.items():
        factors = np.where(rng.random(moved) < 0.5, factor, 1 / factor)
        changed[name][worst] = perturbed(option, changed[name][worst], factors)
    return source, changed


def perturbed(name: str, values: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """x·f. An option with an upper bound b, such as γ, changes its distance to b: b - (b-x)·f. The
    result is clipped to the option's range."""
    numbers = np.finfo(values.dtype)
    high = limit(name, "le")
    most = numbers.max if high is None else high
    least = _least(name, numbers)
    with np.errstate(over="ignore", under="ignore"):
        moved = values * factors if high is None else high - (high - values) * factors
    return np.clip(moved, least, most).astype(values.dtype)


def _least(name: str, numbers: np.finfo) -> float:
    at_least, above = limit(name, "ge"), limit(name, "gt")
    if at_least is not None:
        return at_least
    if above is None:
        return -float(numbers.max)
    return above + float(numbers.eps) * abs(above) + float(numbers.tiny)


def _floats(values: np.ndarray) -> np.ndarray:
    return np.array(values, np.result_type(values, np.float32))


def _best_first(scores: np.ndarray) -> np.ndarray:
    return np.array(ranked(Standing(float(score)) for score in scores), int)
