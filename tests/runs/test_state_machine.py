"""A run that is trained, killed, interrupted, damaged, evaluated and reported in any order."""

import pytest

from benchmarks.faults.histories import lived


@pytest.mark.long
@pytest.mark.usefixtures("unwatched")
def test_whatever_happens_to_a_run_it_ends_as_the_undisturbed_one(tmp_path):
    lived(tmp_path, examples=6, steps=5)
