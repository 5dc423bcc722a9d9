"""Running statistics as the references keep them, and as jmarl does."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jmarl.errors import ConfigError
from jmarl.learning.running_statistics import BETA, ValueNorm
from jmarl.references.base import Weights

SUMS = ("running_mean", "running_mean_sq", "debiasing_term")
VALUE_NORM = tuple(f"value_norm.{name}" for name in SUMS)  # of on-policy's separated runner
POPART = tuple(f"critic.v_out.{name}" for name in ("mean", "mean_sq", "debiasing_term"))
DEVIATION = "critic.v_out.stddev"  # of PopArt; it is saved and never read
LEAST_DEVIATION = 1e-4
MOMENTS = {"obs_rms.mean": "mean", "obs_rms.var": "variance", "obs_rms.count": "count"}


def value_norm_of(weights: Weights) -> dict[str, np.ndarray] | None:
    """ValueNorm's arrays by name, from the statistics of returns; None where there are none."""
    for names in (VALUE_NORM, POPART):
        if weights.keys() >= set(names):
            sums = (float(weights[name].reshape(())) for name in names)
            return {k: np.asarray(v) for k, v in vars(ValueNorm.from_sums(*sums)).items()}
    if any(name in weights for name in VALUE_NORM):
        raise ConfigError(f"the statistics of returns lack one of {', '.join(SUMS)}.")
    return None


def value_sums(norm: Mapping[str, Any], popart: bool) -> Weights:
    """The inverse of `value_norm_of`, in double precision: float32 would lose the variance, and the
    number of updates. torch rounds them when it loads them."""
    mean, variance = (_whole(norm, name) for name in ("mean", "variance"))
    debias = -math.expm1(int(norm["updates"]) * math.log(BETA))
    sums = (debias * mean, debias * (variance + mean**2), debias)
    deviation = np.maximum(np.sqrt(np.maximum(variance, 0.0)), LEAST_DEVIATION)
    names, further = (POPART, {DEVIATION: deviation}) if popart else (VALUE_NORM, {})
    found = dict(zip(names, sums, strict=True)) | further
    return {
        name: np.asarray(x, np.float64).reshape(() if name.endswith("debiasing_term") else (1,))
        for name, x in found.items()
    }


def obs_moments_of(weights: Weights) -> dict[str, np.ndarray] | None:
    """One agent's RunningMoments by name, from gymnasium's words; None where there are none."""
    if not weights.keys() >= set(MOMENTS):
        return None
    found = {}
    for theirs, ours in MOMENTS.items():
        exact = weights[theirs].astype(np.float64).reshape(1, -1)
        found[ours] = exact.astype(np.float32)
        found[f"{ours}_rest"] = (exact - found[ours]).astype(np.float32)
    return found


def obs_moments(stats: Mapping[str, Any]) -> Weights:
    """The inverse of `obs_moments_of`, in double precision."""
    shapes = {"mean": (-1,), "variance": (-1,), "count": ()}
    return {theirs: _whole(stats, ours).reshape(shapes[ours]) for theirs, ours in MOMENTS.items()}


def _whole(stats: Mapping[str, Any], name: str) -> np.ndarray:
    """A number with its rounding error."""
    return np.asarray(stats[name], np.float64) + np.asarray(stats[f"{name}_rest"], np.float64)
