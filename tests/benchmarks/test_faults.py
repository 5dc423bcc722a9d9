"""The benchmark of faults notices what it is there for, and tries a few faults for real."""

import json

import pytest

from benchmarks.faults import values
from benchmarks.faults.__main__ import KINDS, earlier_figures, rows_of
from benchmarks.faults.commands import Done, misbehaved
from benchmarks.faults.contents import (
    contents,
    difference,
    lost_history,
    lost_updates,
    too_many_checkpoints,
)
from benchmarks.faults.trials import Bench, Trial
from benchmarks.report import Row, write


@pytest.fixture
def run(tmp_path):
    """Four lines, and a checkpoint after the second."""
    for update in (1, 2):
        about = tmp_path / "checkpoints" / f"update_{update}" / "about"
        about.mkdir(parents=True)
        (about / "metadata").write_text(json.dumps({"digest": f"d{update}"}), encoding="utf-8")
    write_lines(tmp_path, range(1, 5))
    (tmp_path / "summary.json").write_text('{"seconds": 1.5, "updates": 4}', encoding="utf-8")
    return tmp_path


def write_lines(path, updates, seconds=1.0):
    lines = [{"update": update, "seconds": seconds, "losses/x": update / 4} for update in updates]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "metrics.jsonl").write_text(text, encoding="utf-8")


def test_runs_are_equal_but_for_clocks(run):
    before = contents(run)
    assert before["checkpoints"] == (2, "d2")
    write_lines(run, range(1, 5), seconds=7.0)
    assert difference(contents(run), before) == ""
    (run / "summary.json").write_text('{"seconds": 1.5, "updates": 5}', encoding="utf-8")
    assert difference(contents(run), before) == "summary.json differs in updates: 5, not 4"
    assert difference(contents(run), before, apart=("summary.json",)) == ""
    (run / "summary.json").unlink()
    assert difference(contents(run), before) == "summary.json is missing"


def test_a_line_before_the_checkpoint_that_is_lost_is_noticed(run):
    before = contents(run)
    write_lines(run, [1, 2])
    assert lost_history(run, before) == ""
    assert lost_updates(run) == 0
    write_lines(run, [2, 3, 4])
    assert lost_history(run, before) == (
        "metrics.jsonl lost lines up to update 2, the last checkpoint"
    )
    assert lost_updates(run) == 2
    assert too_many_checkpoints(run, 1) == ""
    assert too_many_checkpoints(run, 0) == "2 checkpoints are kept in checkpoints"


@pytest.mark.parametrize(
    ("done", "problem"),
    [
        (Done(2, "", "num_envs=0 is refused.\n"), ""),
        (Done(0, "", ""), "exit code 0, not 2"),
        (Done(2, "", "a\nb\n"), "2 lines on stderr (b)"),
        (Done(2, "", "Traceback (most recent call last):\nE: x"), "it printed a traceback (E: x)"),
    ],
)
def test_how_a_refusal_looks(done, problem):
    assert misbehaved(done, (2,)) == problem


def test_bad_values_are_refused_and_good_ones_are_noticed(tmp_path, monkeypatch):
    trials = []
    monkeypatch.chdir(tmp_path)
    (tmp_path / "values").mkdir()
    values.refuse_each(Bench(tmp_path, quick=True, seed=0, tell=trials.append), "values")
    assert len(trials) > 6
    assert [trial for trial in trials if trial.problem] == []
    assert values.refused("values", "none", "train", "--help").problem == "exit code 0, not 2"


def test_figures_count_by_kind_and_others_are_kept(tmp_path):
    trials = [Trial("files", "a", "", 3), Trial("files", "b", "it hangs", 1)]
    rows = rows_of([*trials, Trial("kill-run", "c")])
    assert [(row.case, row.metric, row.value) for row in rows] == [
        *(("files", "tried", 2), ("files", "survived", 1), ("files", "most_updates_lost", 3)),
        *(("kill-run", "tried", 1), ("kill-run", "survived", 1)),
        ("kill-run", "most_updates_lost", 0),
    ]
    path = tmp_path / "x.json"
    assert earlier_figures(path, ["files"]).rows == []
    write(path, rows, problems=[trials[1]._asdict()])
    kept = earlier_figures(path, ["kill-run"])
    assert kept.rows == [Row(*row) for row in rows[:3]]
    assert kept.problems == [{"kind": "files", "fault": "b", "problem": "it hangs", "lost": 1}]
    assert earlier_figures(path, list(KINDS)).problems == []
