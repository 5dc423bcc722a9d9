"""Summaries of returns, against scipy, by hand, and by simulation."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from jmarl.stats import interval, iqm, summary


def test_the_interquartile_mean_leaves_a_quarter_out_at_each_end():
    assert iqm(np.array([100.0, 1.0, 2.0, -50.0])) == 1.5


def test_it_is_scipys_trimmed_mean():
    for size in (1, 2, 3, 4, 5, 50, 51):
        sample = np.random.default_rng(size).normal(size=size)
        np.testing.assert_allclose(iqm(sample), scipy_stats.trim_mean(sample, 0.25))


@pytest.mark.parametrize("size", [2, 3])
def test_of_two_and_three_it_is_students_interval_of_the_mean(size):
    sample = np.random.default_rng(0).normal(3, 2, size)
    mean, error = sample.mean(), scipy_stats.sem(sample)
    expected = scipy_stats.t.interval(0.95, size - 1, mean, error)
    np.testing.assert_allclose(interval(sample), expected, rtol=1e-9)


def test_an_interval_of_four_worked_by_hand():
    """0, 1, 3, 8: the middle is 2; s² = (9 + 4 + 0 + 25)/3; t(3) = 3.18245."""
    half = 1.1 * 3.182446305 * np.sqrt(38 / 3) / 2
    np.testing.assert_allclose(interval(np.array([8.0, 0.0, 3.0, 1.0])), [2 - half, 2 + half])


def test_an_interval_of_many_is_that_of_the_trimmed_mean():
    sample = np.random.default_rng(0).normal(3, 2, size=400)
    error = scipy_stats.mstats.trimmed_stde(sample, limits=(0.25, 0.25))
    middle = scipy_stats.trim_mean(sample, 0.25)
    expected = scipy_stats.t.interval(0.95, 199, middle, error)
    np.testing.assert_allclose(interval(sample), expected, rtol=1e-9)


def test_a_single_number_has_no_interval():
    assert np.isnan(interval(np.array([4.0]))).all()
    assert np.isnan(summary(np.array([4.0]))["iqm_high"])


def test_intervals_of_many_samples_are_those_of_each():
    for size in (5, 40):
        samples = np.random.default_rng(3).normal(size=(4, 2, size))
        low, high = interval(samples)
        for at in np.ndindex(4, 2):
            np.testing.assert_allclose((low[at], high[at]), interval(samples[at]))


# The middle half of a population: 0, or between the quartiles of its quantile function -ln(1 - u)
# or exp of the normal's, integrated by hand: (Φ(z - 1) - Φ(-z - 1)) · √e / 0.5, z = 0.67449.
POPULATIONS = {
    "normal": ("normal", 0.0),
    "heavy tails": ("t", 0.0),
    "skewed": ("exponential", 1 - (np.log(4) * 0.25 - np.log(4 / 3) * 0.75) / 0.5),
    "very skewed": ("lognormal", 1.0729227),
}


def drawn(kind, shape):
    rng = np.random.default_rng(shape)
    return rng.standard_t(3, shape) if kind == "t" else getattr(rng, kind)(size=shape)


@pytest.mark.parametrize("name", POPULATIONS)
def test_intervals_cover_what_they_say(name):
    """20,000 samples each: ±0.4 % is chance. From 32 numbers on half of them estimate the width,
    which costs a percent; the tails of a skewed population are seldom in two or three."""
    kind, truth = POPULATIONS[name]
    for size in (2, 3, 4, 5, 8, 10, 16, 31, 32, 64):
        low, high = interval(drawn(kind, (20_000, size)))
        covered = np.mean((low <= truth) & (truth <= high))
        assert covered > 0.925, (size, covered)
        if name == "normal":
            assert 0.935 < covered < 0.965, (size, covered)


def test_a_summary_is_in_order_and_repeats():
    sample = np.random.default_rng(2).normal(size=50)
    told = summary(sample)
    assert told["min"] <= told["iqm_low"] <= told["iqm"] <= told["iqm_high"] <= told["max"]
    assert told == summary(sample)
    np.testing.assert_allclose((told["mean"], told["std"]), (sample.mean(), sample.std()))
