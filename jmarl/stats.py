"""Statistics of returns: moments, and the interquartile mean with its interval."""

from functools import lru_cache

import numpy as np

LEVEL = 0.95
MANY = 32  # from so many numbers on, a sample says itself how much its middle half varies
WIDER = 1.1  # the IQM of a normal sample varies up to so many times as much as its mean


def iqm(sample: np.ndarray) -> np.ndarray:
    """Mean of the middle half along the last axis: almost as robust as the median, with less
    variance. Equals scipy's trim_mean(x, 0.25), whose import takes a second. Of fewer than four
    numbers it is the mean."""
    first, last = _middle_half(sample.shape[-1])
    return np.partition(sample, (first, last))[..., first : last + 1].mean(-1)


def _middle_half(size: int) -> tuple[int, int]:
    """Its first and its last place among sorted numbers."""
    cut = size // 4
    return cut, size - cut - 1


def interval(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interval of the interquartile mean along the last axis, by Student's t: (low, high), NaN for
    a single number.

    Few numbers:   IQM ± t(n - 1) · s / √n, and 1.1 times as wide where the IQM is not the mean.
    `MANY` and up: IQM ± t(h - 1) · w · √n / h, with h numbers in the middle half, and w the
    standard deviation after all others were moved to its ends. Tukey & McLaughlin 1963.

    Resampling would be too narrow: the percentile bootstrap of three numbers covers 74 %."""
    middle, size = iqm(samples), samples.shape[-1]
    if size == 1:
        return np.full_like(middle, np.nan), np.full_like(middle, np.nan)
    if size < MANY:
        wider = 1.0 if size < 4 else WIDER
        half = wider * _t(size - 1) * samples.std(-1, ddof=1) / np.sqrt(size)
    else:
        first, last = _middle_half(size)
        kept = last - first + 1
        half = _t(kept - 1) * _winsorised(samples).std(-1, ddof=1) * np.sqrt(size) / kept
    return middle - half, middle + half


def _winsorised(samples: np.ndarray) -> np.ndarray:
    """The lowest and the highest quarter moved to the ends of the middle half."""
    places = _middle_half(samples.shape[-1])
    ends = np.partition(samples, places)[..., list(places)]
    return np.clip(samples, ends[..., :1], ends[..., 1:])


@lru_cache
def _t(freedom: int) -> float:
    """Student's t: `LEVEL` of its values lie between -t and t."""
    from scipy.special import stdtrit  # lazily: its import takes longer than most uses of this file

    return float(stdtrit(freedom, (1 + LEVEL) / 2))


def summary(sample: np.ndarray) -> dict[str, float]:
    sample = np.asarray(sample, np.float64)
    low, high = interval(sample)
    return {
        "mean": float(sample.mean()),
        "std": float(sample.std()),
        "min": float(sample.min()),
        "max": float(sample.max()),
        "iqm": float(iqm(sample)),
        "iqm_low": float(low),
        "iqm_high": float(high),
    }
