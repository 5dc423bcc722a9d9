"""Who trains on: numbers worked by hand, and laws that hold for any scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jmarl.config.train_config import build
from jmarl.learning.ppo_loss import HyperParams
from jmarl.sweeps.selection import exploit_and_explore, perturbed, rung_updates, survivors

NAN = float("nan")


@pytest.mark.parametrize(
    ("total", "rungs", "factor", "expected"),
    [
        (100, 3, 2, [12, 25, 50]),  # 100/8, 100/4, 100/2
        (81, 3, 3, [3, 9, 27]),
        (10, 5, 2, [1, 2, 5]),  # 10/16 and 10/32 are less than an update
        (3, 2, 2, [1]),  # 3/4 is none
        (1, 3, 2, []),
    ],
)
def test_rungs_are_geometric_and_the_end_is_none(total, rungs, factor, expected):
    assert rung_updates(total, rungs, factor) == expected


@pytest.mark.parametrize(
    ("scores", "settings", "factor", "expected"),
    [
        ([3, 1, 2, 4], range(4), 2, [0, 3]),
        ([3, 1, 2, 4, 0], range(5), 2, [0, 2, 3]),  # ⌈5/2⌉ = 3
        ([-9, -1, -5], range(3), 3, [1]),
        ([NAN, -100, NAN, -200], range(4), 2, [1, 3]),
        ([1, 1, 1, 1], range(4), 2, [0, 1]),  # of equals the first
        ([NAN, NAN, NAN], range(3), 2, [0, 1]),
        ([5], [7], 2, [0]),
        ([9, 0, 4, 6], [3, 3, 5, 5], 2, [2, 3]),  # 4.5 and 5: the best seed alone is no setting
        ([9, 4, 0, 6], [3, 5, 3, 5], 2, [1, 3]),  # wherever they stand
        ([9, NAN, 0, 1], [0, 0, 1, 1], 2, [2, 3]),  # who lost a seed comes after who did not
        ([0, 1, 1, 90, 0, 2, 2, 3], [0] * 4 + [1] * 4, 2, [4, 5, 6, 7]),  # the middle two: 1 and 2
    ],
)
def test_the_best_settings_survive_with_all_their_seeds(scores, settings, factor, expected):
    found = survivors(np.array(scores, float), np.array(settings), factor)
    assert found.tolist() == expected


def test_the_winner_of_equals_is_lucky_and_its_confirmation_is_not():
    """8 equal settings × 4 seeds, 2,000 times; a score is the seed's own, the same at every rung.
    Selecting seeds reports single survivors, 2.0 deviations too high; selecting settings the best
    of 8 means of 4, 1.42/2 by theory; four fresh seeds are right on average."""
    rng = np.random.default_rng(0)
    settings = np.repeat(np.arange(8), 4)
    lucky, selected, confirmed = [], [], []
    for _ in range(2000):
        scores = rng.normal(size=32)
        seeds, kept = np.argsort(-scores)[:4], np.arange(32)  # 32 → 16 → 8 → 4
        lucky.append(max(scores[seeds[settings[seeds] == s]].mean() for s in settings[seeds]))
        for _ in range(3):
            kept = kept[survivors(scores[kept], settings[kept], 2)]
        assert len(kept) == 4
        selected.append(scores[kept].mean())
        confirmed.append(rng.normal(size=4).mean())
    assert 1.9 < np.mean(lucky) < 2.1
    assert 0.6 < np.mean(selected) < 0.75
    assert abs(np.mean(confirmed)) < 0.05


SCORES = st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=12)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SCORES, st.integers(2, 5))
def test_survivors_are_never_none_and_no_worse_than_the_rest(scores, factor):
    scores = np.array(scores)
    kept = survivors(scores, np.arange(len(scores)), factor)
    assert len(kept) == -(-len(scores) // factor)
    assert np.all(np.diff(kept) > 0)
    scores[np.isinf(scores)] = NAN
    lost = np.delete(scores, kept)
    if not np.isnan(lost).all():
        assert not np.isnan(scores[kept]).any()
        assert scores[kept].min() >= np.nanmax(lost)


def of_ppo(*names):
    return {name: f"ppo.{name}" for name in names}


def test_the_worst_copy_the_best_and_are_changed_a_little():
    """8 members, a quarter: members 1 and 6 are the worst, 3 and 4 the best."""
    scores = np.array([4, 0, 5, 9, 8, 3, NAN, 2])
    hyper = {"lr": np.arange(1.0, 9.0), "gamma": np.full(8, 0.9), "clip_eps": np.arange(8) / 8}
    source, changed = exploit_and_explore(scores, hyper, of_ppo("lr", "gamma"), 0, 100, 0.25, 1.25)
    assert [i for i in range(8) if source[i] != i] == [1, 6]
    for member in (1, 6):
        assert source[member] in (3, 4)
        lr = hyper["lr"][source[member]]
        assert changed["lr"][member] in (lr * 1.25, lr / 1.25)
        # 1-γ = 0.1 becomes 0.125 or 0.08
        assert min(abs(changed["gamma"][member] - x) for x in (0.875, 0.92)) < 1e-12
        assert changed["clip_eps"][member] == hyper["clip_eps"][source[member]]
    others = [0, 2, 3, 4, 5, 7]
    for name, values in hyper.items():
        assert changed[name][others].tolist() == values[others].tolist()
    assert hyper["lr"].tolist() == list(range(1, 9))  # what was given is left as it was


def test_exchanges_are_the_same_again_and_others_at_other_updates():
    scores, hyper = np.arange(40.0), {"lr": np.full(40, 1e-3)}
    one, again, later, other = (
        exploit_and_explore(scores, hyper, of_ppo("lr"), seed, update, 0.25, 1.2)
        for seed, update in ((1, 5), (1, 5), (1, 6), (2, 5))
    )
    assert one[0].tolist() == again[0].tolist()
    assert one[1]["lr"].tolist() == again[1]["lr"].tolist()
    assert one[0].tolist() != later[0].tolist()
    assert one[0].tolist() != other[0].tolist()


def test_both_directions_are_taken():
    scores, hyper = np.arange(40.0), {"lr": np.ones(40)}
    _, changed = exploit_and_explore(scores, hyper, of_ppo("lr"), 0, 0, 0.25, 2.0)
    assert set(changed["lr"].tolist()) == {0.5, 1.0, 2.0}


@pytest.mark.parametrize("scores", [[NAN, NAN, NAN], [1.0]])
def test_with_nobody_to_learn_from_nothing_moves(scores):
    hyper = {"lr": np.ones(len(scores), np.float32)}
    source, changed = exploit_and_explore(np.array(scores), hyper, of_ppo("lr"), 0, 0, 0.5, 2.0)
    assert source.tolist() == list(range(len(scores)))
    assert changed["lr"].tolist() == hyper["lr"].tolist()


@pytest.mark.parametrize(
    ("name", "value", "factor", "expected"),
    [
        ("ppo.lr", 1e-3, 1.25, 1.25e-3),
        ("ppo.gamma", 0.96, 1.25, 0.95),  # 1 - 0.04·1.25
        ("ppo.gae_lambda", 0.9, 0.8, 0.92),  # 1 - 0.1·0.8
        ("ppo.gamma", 0.1, 1.25, 0.0),  # 1 - 0.9·1.25 < 0
        ("ppo.gamma", 1.0, 1.25, 1.0),
        ("ppo.entropy_coef", 0.0, 1.25, 0.0),
        ("ppo.target_kl", -1.0, 1.25, -1.25),  # never is never
    ],
)
def test_changes_worked_by_hand(name, value, factor, expected):
    found = perturbed(name, np.array([value]), np.array([factor]))
    np.testing.assert_allclose(found, [expected], rtol=1e-12)


NAMES = sorted(HyperParams._fields)
VALUES = {
    "gamma": st.floats(0, 1, width=32),
    "gae_lambda": st.floats(0, 1, width=32),
    "entropy_coef": st.floats(0, 2.0**127, width=32),
    "value_coef": st.floats(0, 2.0**127, width=32),
}
POSITIVE = st.floats(2.0**-126, 2.0**127, width=32)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data(), st.floats(1.0625, 10), st.integers(0, 2**31), st.integers(0, 10**6))
def test_exchanges_stay_legal(data, factor, seed, update):
    scores = np.array(data.draw(SCORES))
    size = len(scores)
    hyper = {
        name: np.array(
            data.draw(st.lists(VALUES.get(name, POSITIVE), min_size=size, max_size=size)),
            np.float32,
        )
        for name in data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    }
    source, changed = exploit_and_explore(scores, hyper, of_ppo(*hyper), seed, update, 0.3, factor)
    assert source.shape == (size,)
    moved = source != np.arange(size)
    assert moved.sum() <= max(1, round(0.3 * size))
    assert not np.isnan(scores[source[moved]]).any()
    for name, values in changed.items():
        assert values.dtype == np.float32
        assert values[~moved].tolist() == hyper[name][~moved].tolist()
        for value in values[moved]:
            chosen = {"algorithm": "mappo", "ppo": {name: float(value)}}
            build(chosen)  # refuses what is out of range
            assert np.isfinite(value)
