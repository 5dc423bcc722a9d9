"""A watchdog speaks once, and only when nothing moves."""

import time

import pytest

from jmarl.runs.loop import ResumePoint, Runner
from jmarl.runs.recorder import NullRecorder
from jmarl.runs.watchdog import Watchdog


def test_it_speaks_once_when_nothing_moves():
    said = []
    with Watchdog(lambda: said.append("stalled"), seconds=1):
        time.sleep(3.5)
    assert said == ["stalled"]


@pytest.mark.long
def test_it_is_silent_while_something_moves_and_when_it_is_over():
    said = []
    with Watchdog(lambda: said.append("stalled"), seconds=2) as watchdog:
        for _ in range(6):
            time.sleep(0.5)
            watchdog.alive()
    time.sleep(2.5)
    assert not said


@pytest.mark.parametrize(
    ("update", "words"), [(None, "no checkpoint yet"), (50, "after update 50, the last checkpoint")]
)
def test_the_parting_words_name_the_last_checkpoint(update, words):
    class Saved(NullRecorder):
        def last_saved(self):
            return update

    runner = Runner(None, None, ResumePoint(), Saved(), None)  # only its sink is asked
    with pytest.warns(UserWarning, match=words):
        runner._warn_of_stall()
