"""What a sample of returns says: moments, the interquartile mean, and how sure it is."""

import numpy as np

LEVEL = 0.95
RESAMPLES = 500


def iqm(sample: np.ndarray) -> np.ndarray:
    """Mean of the middle half along the last axis: as robust as the median, with less variance.
    scipy's trim_mean(x, 0.25), whose import alone takes a second."""
    size = sample.shape[-1]
    cut = size // 4
    return np.partition(sample, (cut, size - cut - 1))[..., cut : size - cut].mean(-1)


def bootstrap_interval(
    sample: np.ndarray, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of the interquartile mean, the same for the same sample."""
    low, high = bootstrap_intervals(sample, level, resamples, seed)
    return float(low), float(high)


def bootstrap_intervals(
    samples: np.ndarray, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The same of many samples at once, each along the last axis."""
    size = samples.shape[-1]
    drawn = np.random.default_rng(seed).integers(size, size=(resamples, size))
    middles = iqm(samples[..., drawn])
    low, high = np.quantile(middles, [(1 - level) / 2, (1 + level) / 2], axis=-1)
    return low, high


def summary(sample: np.ndarray) -> dict[str, float]:
    sample = np.asarray(sample, np.float64)
    low, high = bootstrap_interval(sample)
    return {
        "mean": float(sample.mean()),
        "std": float(sample.std()),
        "min": float(sample.min()),
        "max": float(sample.max()),
        "iqm": float(iqm(sample)),
        "iqm_low": low,
        "iqm_high": high,
    }
