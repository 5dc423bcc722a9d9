"""The picture that a run ends with."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from jmarl.config.train_config import build
from jmarl.replays.best_gif import draw_best
from jmarl.runs.files import REPLAY
from jmarl.runs.single import resumed_values, run
from tests.support.tiny_runs import configured, go, told

pytestmark = pytest.mark.usefixtures("unwatched")


@pytest.mark.long
def test_of_several_seeds_the_best_is_drawn(tmp_path):
    path = tmp_path / "run"
    go(configured(path, seeds=3, total_updates=4, gif=True))
    best = []
    for seed in range(3):
        lines = told(path / f"seed_{seed}", "evals.jsonl")
        best.append(
            max(e["eval/return_mean"] for e in lines if e["update"] and "absolute" not in e)
        )
    drawn = [(path / f"seed_{seed}" / REPLAY).exists() for seed in range(3)]
    assert np.flatnonzero(drawn).tolist() == [int(np.argmax(best))]
    assert not (path / REPLAY).exists()


@pytest.mark.long
def test_a_picture_that_fails_costs_nothing_else(tmp_path):
    path = tmp_path / "run"
    go(configured(path, total_updates=2))
    assert not (path / REPLAY).exists()  # tiny runs have it turned off
    (path / REPLAY).mkdir()  # nothing can be written there
    said = io.StringIO()
    more = {"total_updates": 3, "gif": True, "quiet": False}
    run(build(resumed_values(path) | more), Console(file=said), draw_best)
    lines = [line for line in said.getvalue().splitlines() if "could not draw a replay" in line]
    assert len(lines) == 1
    assert "all else is saved" in lines[0]
    assert json.loads((path / "summary.json").read_text(encoding="utf-8"))["updates"] == 3


def test_other_worlds_have_no_picture(tmp_path):
    path, said = tmp_path / "run", io.StringIO()
    values = {"env": "probe/context", "total_updates": 1, "gif": True, "quiet": False}
    run(configured(path, **values), Console(file=said), draw_best)
    assert (path / "summary.json").exists()
    assert not (path / REPLAY).exists()
    assert "picture" not in said.getvalue()
