"""Curves over seeds and their thinning, against numpy and scipy."""

import itertools

import numpy as np
from scipy import stats

from jmarl.reports.curves import METRICS, Samples, curve, metrics_of, thinned
from jmarl.reports.data import read_run
from tests.support.report_files import config_of, measured, write_lines, write_run

GREEDY, SAMPLED = METRICS[:2]


def by_key(key):
    return next(metric for metric in METRICS if metric.key == key)


def test_a_curve_is_the_middle_of_the_seeds_that_got_there(tmp_path):
    returns = np.random.default_rng(0).normal(size=(5, 11))
    runs = [
        read_run(write_run(tmp_path / str(i), config_of(i), list(own)))
        for i, own in enumerate(returns)
    ]
    short = write_run(tmp_path / "short", config_of(5), [7.0, 8.0, 9.0], updates=2)
    found = curve([*runs, read_run(short)], GREEDY, 100)
    assert found.steps.tolist() == [100 * i for i in range(11)]
    np.testing.assert_allclose(found.seconds, 0.5 * np.arange(11))
    assert found.seeds.tolist() == [6] * 3 + [5] * 8
    np.testing.assert_allclose(found.middle[3:], stats.trim_mean(returns[:, 3:], 0.25))
    first = [*returns[:, 0], 7.0]
    np.testing.assert_allclose(found.middle[0], stats.trim_mean(first, 0.25))
    middle = stats.trim_mean(returns[:, 10], 0.25)
    expected = stats.t.interval(0.95, 4, middle, 1.1 * stats.sem(returns[:, 10]))
    np.testing.assert_allclose([found.low[10], found.high[10]], expected)


def test_one_seed_has_no_interval_and_what_is_not_finite_is_left_out(tmp_path):
    path = write_run(tmp_path / "a", config_of(), [1.0, 2.0, 3.0])
    lines = [measured(1), measured(2, **{"losses/entropy": None}), measured(3, seconds=None)]
    write_lines(path / "metrics.jsonl", lines)
    run = read_run(path)
    assert np.isnan(curve([run], GREEDY, 10).low).all()
    entropy = curve([run], by_key("losses/entropy"), 10)
    np.testing.assert_allclose(entropy.middle, [1.59, 1.57])
    assert np.isnan(entropy.seconds).tolist() == [False, True]
    assert curve([run], by_key("eval/win_rate"), 10) is None


def test_only_metrics_that_were_written_are_listed(tmp_path):
    path = write_run(tmp_path / "a", config_of(), [1.0])
    keys = [metric.key for metric in metrics_of([read_run(path)])]
    assert keys[:3] == ["eval/return_mean", "eval_sampled/return_mean", "charts/SPS"]
    assert "eval/win_rate" not in keys
    assert "losses/grad_norm" not in keys


def test_thinning_keeps_extremes_ends_and_its_promise():
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(10_000, 3))
    samples[1234], samples[7777, 0], samples[8888, 1] = 9.0, -50.0, 60.0
    every = Samples(samples.ravel(), 3 * np.arange(10_000), np.full(10_000, 3))
    kept = thinned(every, 100)
    assert len(kept) <= 100
    assert {0, 1234, 7777, 8888, 9999} <= set(kept.tolist())
    middle = stats.trim_mean(samples, 0.25, axis=1)
    edges = [10_000 * i // 24 for i in range(25)]  # (100 - 2) // 4 stretches
    for begin, end in itertools.pairwise(edges):
        part, own = samples[begin:end], middle[begin:end]
        extremes = {own.argmin(), own.argmax(), part.min(1).argmin(), part.max(1).argmax()}
        assert {begin + i for i in extremes} <= set(kept.tolist())
    assert (np.diff(kept) > 0).all()
    assert thinned(every.at(np.arange(100)), 100).tolist() == list(range(100))


def test_a_long_curve_shows_points_that_were_written(tmp_path):
    path = write_run(tmp_path / "a", config_of(), [1.0])
    values = np.random.default_rng(1).normal(size=3000)
    lines = [measured(i + 1, **{"losses/value_loss": x}) for i, x in enumerate(values)]
    write_lines(path / "metrics.jsonl", lines)
    found = curve([read_run(path)], by_key("losses/value_loss"), 200)
    assert found.found == 3000
    assert 100 < len(found.steps) <= 200
    np.testing.assert_array_equal(found.middle, values[found.steps // 100 - 1])
    assert (found.middle.min(), found.middle.max()) == (values.min(), values.max())
