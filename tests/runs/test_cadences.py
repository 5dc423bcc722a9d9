"""What is due happens when it is due, and lines cover all updates since the last one."""

import shutil

import numpy as np
import pytest
from rich.console import Console

import jmarl
from jmarl.execution.population import make_population
from jmarl.runs.cadence import next_evaluation
from jmarl.runs.loop import ResumePoint, Runner
from jmarl.runs.progress import Screen
from jmarl.runs.recorder import NullRecorder
from jmarl.runs.signals import Interruption
from jmarl.runs.spans import Span
from tests.support.tiny_runs import configured, go, resumed, same_runs, told

pytestmark = pytest.mark.usefixtures("cache")
LOG, EVALUATE, SAVE, END = 8, 5, 3, 20
# episodes of 25 steps end in every fifth update of 5
CADENCES = {"log_every": LOG, "eval_every": EVALUATE, "checkpoint_every": SAVE}
LONG = {"total_updates": END, "keep_checkpoints": 99}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, cache):
    path = tmp_path_factory.mktemp("cadences") / "run"
    go(configured(path, **LONG, **CADENCES))
    return path


@pytest.fixture(scope="module")
def every_update(whole):
    """The same run with a line for every update."""
    config = configured(None, **LONG, log_every=1, eval_every=END)
    return jmarl.train(config.values())


def updates(path, name):
    return [line["update"] for line in told(path, name)]


def test_every_cadence_is_kept_whatever_the_others_are(whole):
    assert updates(whole, "evals.jsonl") == [0, 5, 10, 15, 20, 20]
    assert updates(whole, "metrics.jsonl") == [8, 16, 20]
    saved = {int(path.name.split("_")[1]) for path in (whole / "checkpoints").iterdir()}
    assert {3, 6, 9, 12, 15, 18, 20} <= saved <= {3, 6, 9, 12, 15, 18, 20, 5, 10}


@pytest.mark.parametrize("total", [1, 73, 150, 151, 244, 1000])
def test_ppo_is_evaluated_150_times_if_it_has_so_many_updates(total):
    config = configured(None, "ppo", total_updates=total, eval_every=None)
    due = [0]
    while due[-1] < total:
        due.append(next_evaluation(config, due[-1]))
    assert len(due) - 1 == min(total, 150)
    assert due[-1] == total
    gaps = np.diff(due)
    assert gaps.min() >= 1
    assert gaps.max() - gaps.min() <= 1


def test_a_line_has_the_means_over_all_updates_since_the_last_one(whole, every_update):
    assert every_update.metrics["update"].tolist() == list(range(1, END + 1))
    for line, (first, last) in zip(
        told(whole, "metrics.jsonl"), ((0, 8), (8, 16), (16, 20)), strict=True
    ):
        for name in line.keys() - {"update", "steps"}:
            values = every_update.metrics[name][first:last]
            known = values[~np.isnan(values)] if name == "train/episode_return" else values
            np.testing.assert_allclose(line[name], known.mean(), rtol=1e-12, err_msg=name)
    ended = ~np.isnan(every_update.metrics["train/episode_return"])
    assert ended.tolist() == [update % 5 == 0 for update in range(1, END + 1)]


@pytest.mark.long
@pytest.mark.parametrize("checkpoint", [9, 18])
def test_a_run_that_resumes_within_a_line_writes_the_same_lines(checkpoint, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "x")
    for path in (tmp_path / "x" / "checkpoints").iterdir():
        if int(path.name.split("_")[1]) > checkpoint:
            shutil.rmtree(path)
    resumed(tmp_path / "x")
    same_runs(tmp_path / "x", whole, END)


def test_a_signal_leaves_no_line_that_an_uninterrupted_run_would_not_have(every_update):
    """It comes with the evaluation after update 10, so that training stops there or at the next
    thing that is due, the checkpoint after update 12."""

    class Stopping(NullRecorder):
        saved, logged = (), ()

        def metrics(self, entries, overall):
            self.logged = (*self.logged, overall["update"])

        def evaluation(self, entries, overall):
            if overall["update"] == 10:
                interruption.signal = 15

        def save(self, update, snapshot, score, about):
            self.saved = (*self.saved, (update, about["span"]))

    interruption, recorder = Interruption(), Stopping()
    config = configured(None, **LONG, **CADENCES)
    population = make_population(config)
    screen = Screen(Console(), END, quiet=True)
    outcome = Runner(config, population, ResumePoint(), recorder, screen).run(interruption)
    assert (outcome.update, outcome.stopped_by) == (12, 15)
    assert recorder.logged == (8,)
    update, span = recorder.saved[-1]
    assert update == 12
    total = every_update.metrics["losses/policy_loss"][8:12].sum()
    np.testing.assert_allclose(span["totals"]["losses/policy_loss"], [total], rtol=1e-12)
    assert span["counts"]["losses/policy_loss"] == [4]


def test_what_is_not_known_is_left_out_of_a_line():
    values = {
        "losses/explained_variance": np.array([[1.0, 1.0], [np.nan, 3.0]]),
        "train/episode_return/fox": np.array([[np.nan, np.nan], [np.nan, 4.0]]),
    }
    span = Span(only_finite=False)
    span.add({name: array[:1] for name, array in values.items()})
    again = Span(only_finite=False, stored=span.stored())
    again.add({name: array[1:] for name, array in values.items()})
    first, second = again.means()
    assert np.isnan(list(first.values())).all()
    assert second == {"losses/explained_variance": 2.0, "train/episode_return/fox": 4.0}
    skipping = Span(only_finite=True)
    skipping.add(values)
    assert skipping.means()[0]["losses/explained_variance"] == 1.0
    assert skipping.stored() == {"totals": {}, "counts": {}}
