"""Summaries of returns, against scipy and by hand."""

import numpy as np
from scipy import stats as scipy_stats

from jmarl.stats import bootstrap_interval, bootstrap_intervals, iqm, summary


def test_the_interquartile_mean_leaves_a_quarter_out_at_each_end():
    assert iqm(np.array([100.0, 1.0, 2.0, -50.0])) == 1.5


def test_it_is_scipys_trimmed_mean():
    for size in (1, 2, 3, 4, 5, 50, 51):
        sample = np.random.default_rng(size).normal(size=size)
        np.testing.assert_allclose(iqm(sample), scipy_stats.trim_mean(sample, 0.25))


def test_the_interval_agrees_with_scipys_bootstrap():
    sample = np.random.default_rng(0).normal(3, 2, size=400)
    expected = scipy_stats.bootstrap(
        (sample,),
        lambda x, axis: scipy_stats.trim_mean(x, 0.25, axis=axis),
        method="percentile",
        n_resamples=2000,
        rng=np.random.default_rng(1),
    ).confidence_interval
    low, high = bootstrap_interval(sample, resamples=2000)
    np.testing.assert_allclose([low, high], expected, atol=0.03)


def test_intervals_of_many_samples_are_those_of_each():
    samples = np.random.default_rng(3).normal(size=(4, 2, 5))
    low, high = bootstrap_intervals(samples)
    for at in np.ndindex(4, 2):
        assert (low[at], high[at]) == bootstrap_interval(samples[at])


def test_a_summary_is_in_order_and_repeats():
    sample = np.random.default_rng(2).normal(size=50)
    told = summary(sample)
    assert told["min"] <= told["iqm_low"] <= told["iqm"] <= told["iqm_high"] <= told["max"]
    assert told == summary(sample)
    np.testing.assert_allclose((told["mean"], told["std"]), (sample.mean(), sample.std()))
    assert summary(np.array([4.0]))["iqm_high"] == 4.0
