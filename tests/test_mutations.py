"""The planted lines are still where they were. `python -m tests.mutations` plants them."""

import pytest

from tests.mutations import MUTATIONS, ROOT, check, verdict
from tests.support.forked_pytest import Ended


def test_every_right_line_is_once_in_its_file_and_its_tests_are_there():
    check(MUTATIONS, ROOT)
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
    for mutation in MUTATIONS:
        assert (ROOT / mutation.tests.split()[0]).is_file()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"right": "no such line"}, "'no such line' is 0× in stats.py"),
        ({"right": "sample"}, "× in stats.py"),
        ({"right": "RESAMPLES = 500", "wrong": "RESAMPLES = 500"}, "nothing is wrong"),
    ],
)
def test_a_line_that_is_gone_is_an_error_not_a_survivor(changed, words):
    mutation = MUTATIONS[0]._replace(file="stats.py", **changed)
    with pytest.raises(SystemExit, match=words) as stopped:
        check([mutation], ROOT)
    assert stopped.value.code  # a message: the command's exit code is 1


FAILED = "FAILED tests/test_x.py::test_y[a, b-1] - assert 1 == 2\n"


@pytest.mark.parametrize(
    ("exit_code", "output", "expected"),
    [
        (0, "1 passed", "SURVIVED"),
        (1, f"E   assert 1 == 2\n{FAILED}1 failed", "killed"),
        (1, f"E   subprocess.TimeoutExpired: Command\n{FAILED}1 failed", "UNKNOWN"),
        (2, "ERROR tests/test_x.py - ImportError\n1 error during collection", "UNKNOWN"),
        (5, "no tests ran", "UNKNOWN"),
        (-11, "", "UNKNOWN"),
    ],
)
def test_only_a_test_that_fails_kills(exit_code, output, expected):
    found, reason = verdict(Ended(exit_code, output))
    assert found == expected
    assert (reason == "tests/test_x.py::test_y[a, b-1]") == (expected == "killed")
