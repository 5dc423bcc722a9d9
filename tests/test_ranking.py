"""The ranking rule: orders worked by hand."""

import pytest

from jmarl.ranking import Standing, ranked, training_progress

NAN = float("nan")


@pytest.mark.parametrize(
    ("standings", "order"),
    [
        ([Standing(1.0), Standing(3.0), Standing(2.0)], [1, 2, 0]),
        ([Standing(9.0, progress=0.5), Standing(1.0)], [1, 0]),  # went further
        ([Standing(9.0, failed=True), Standing(1.0)], [1, 0]),  # in every seed
        ([Standing(9.0, 1.0, True), Standing(1.0, 0.5)], [0, 1]),  # progress counts more
        ([Standing(NAN), Standing(-1e9, 0.1, True)], [1, 0]),
        ([Standing(NAN), Standing(1.0), Standing(NAN), Standing(1.0)], [1, 3, 0, 2]),
        ([], []),
    ],
)
def test_progress_counts_more_than_failures_and_these_more_than_scores(standings, order):
    assert ranked(standings) == order


def test_progress_has_one_digit_and_needs_a_budget():
    assert training_progress(333, 1000) == 0.3
    assert training_progress(0, 1000) == 0.0
    assert training_progress(40, 0) == training_progress(40, None) == 0.0
