"""Who trains on: successive halving, and exchange between members of a population."""

import math
from collections.abc import Sequence

import numpy as np

from jmarl.config.option_names import limit


def rung_updates(total: int, rungs: int, factor: int) -> list[int]:
    """total/factorᵏ for k = rungs … 1: when halving selects. The end is no rung, and where the
    budget is short there are fewer. Jamieson & Talwalkar 2016."""
    return sorted({total // factor**k for k in range(1, rungs + 1)} - {0})


def survivors(scores: np.ndarray, factor: int) -> np.ndarray:
    """Indices `[⌈M/factor⌉]` of the best scores `[M]`, in order. NaN is worse than any score, and
    of equals the first is better."""
    return np.sort(_ranked(scores)[: math.ceil(len(scores) / factor)])


def exchange(
    scores: np.ndarray,
    hyper: dict[str, np.ndarray],
    names: Sequence[str],
    seed: int,
    update: int,
    fraction: float,
    factor: float,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Truncation selection. Each of the worst `fraction` becomes a copy of one of the best, drawn
    at random, and its `names` are then multiplied by `factor` or 1/`factor`. Whose copy each member
    is (most: their own) and the new hyperparameters, all `[M]`. Jaderberg et al. 2017.

    Names may be those of sweeps (`ppo.lr`) or of `Hyper` (`lr`)."""
    size = len(scores)
    rng = np.random.default_rng([seed, update])
    ranked, source = _ranked(scores), np.arange(size)
    moved = min(max(1, round(fraction * size)), size // 2)
    best = [i for i in ranked[:moved] if not np.isnan(scores[i])]
    if not best:  # nobody to learn from
        return source, {name: _floats(values) for name, values in hyper.items()}
    worst = ranked[size - moved :]
    source[worst] = rng.choice(best, size=moved)
    changed = {name: _floats(values)[source] for name, values in hyper.items()}
    for name in names:
        field = name.removeprefix("ppo.")
        factors = np.where(rng.random(moved) < 0.5, factor, 1 / factor)
        changed[field][worst] = perturbed(f"ppo.{field}", changed[field][worst], factors)
    return source, changed


def perturbed(name: str, values: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """x·f; of what has an upper bound b, such as γ, the distance to it: b - (b-x)·f. Never out of
    the option's range."""
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


def _ranked(scores: np.ndarray) -> np.ndarray:
    """Indices from best to worst."""
    return np.argsort(-np.asarray(scores, np.float64), kind="stable")  # NaN goes last
