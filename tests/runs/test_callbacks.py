"""What ends a run early, or changes it on resume: callbacks, the target return, a new rate."""

import json
import shutil

import numpy as np
import pytest
import yaml

import jmarl
from jmarl.errors import ConfigError
from jmarl.execution.members import Best
from jmarl.runs.loop import reached_target
from tests.support.tiny_runs import configured, digest, go, resumed, told

pytestmark = pytest.mark.usefixtures("cache", "unwatched")


class Heard(jmarl.Callback):
    """Remembers everything; ends training where it is told to, or fails there."""

    def __init__(self, stop_at=None, fail_at=None):
        self.calls, self.stop_at, self.fail_at = [], stop_at, fail_at

    def _hear(self, what, update):
        if self.fail_at == (what, update):
            raise ArithmeticError("own fault")
        self.calls.append((what, update))
        return self.stop_at == (what, update)

    def on_metrics(self, line, members):
        assert line == members[0]
        return self._hear("metrics", line["update"])

    def on_evaluation(self, line, members):
        assert "eval/return_mean" in line or "absolute/return_mean" in line
        return self._hear("absolute" if "absolute" in line else "evaluation", line["update"])

    def on_checkpoint(self, update):
        return self._hear("checkpoint", update)

    def on_end(self, outcome):
        self._hear("end", outcome.update)


@pytest.fixture(scope="module")
def heard():
    return Heard()


@pytest.fixture(scope="module")
def whole(tmp_path_factory, heard, cache):
    path = tmp_path_factory.mktemp("whole") / "run"
    jmarl.train(configured(None), run_dir=path, callbacks=[heard])
    return path


def finished(path):
    return json.loads((path / "summary.json").read_text(encoding="utf-8"))


def stored(path):
    return yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))


def test_callbacks_hear_everything_in_order(whole, heard):
    one, two, three = heard.calls[:4], heard.calls[4:8], heard.calls[8:]
    assert one == [("evaluation", 0), ("metrics", 1), ("metrics", 2), ("evaluation", 2)]
    assert two == [("checkpoint", 2), ("metrics", 3), ("metrics", 4), ("evaluation", 4)]
    last = [("metrics", 5), ("metrics", 6), ("evaluation", 6), ("checkpoint", 6)]
    assert three == [("checkpoint", 4), *last, ("absolute", 6), ("end", 6)]


@pytest.mark.long
def test_a_run_that_a_callback_ends_is_finished_and_can_go_on(whole, tmp_path):
    """After an update after which nothing else is due."""
    path, stopping = tmp_path / "x", Heard(stop_at=("metrics", 3))
    outcome = jmarl.train(configured(None), run_dir=path, callbacks=[stopping])
    assert (outcome.update, outcome.stopped_by) == (3, None)
    assert finished(path)["finished"]
    assert finished(path)["updates"] == 3
    assert outcome.evaluations["update"].tolist() == [0, 2, 3, 3]  # the last is of the best
    assert stopping.calls[-4:] == [
        ("evaluation", 3),
        ("checkpoint", 3),
        ("absolute", 3),
        ("end", 3),
    ]
    resumed(path)
    assert digest(path, 6) == digest(whole, 6)
    assert told(path, "metrics.jsonl") == told(whole, "metrics.jsonl")


def test_a_callback_that_fails_loses_nothing_on_disk(whole, tmp_path):
    path, failing = tmp_path / "x", Heard(fail_at=("evaluation", 4))
    with pytest.raises(ArithmeticError, match="own fault"):
        jmarl.train(configured(None), run_dir=path, callbacks=[failing])
    assert digest(path, 2) == digest(whole, 2)
    for name in ("metrics.jsonl", "evals.jsonl"):
        until = [line for line in told(whole, name) if line["update"] <= 4]
        assert told(path, name) == until
    assert not (path / "summary.json").exists()


@pytest.fixture(scope="module")
def early(tmp_path_factory, cache):
    """The first evaluation of a trained policy has more than the target."""
    path = tmp_path_factory.mktemp("early") / "run"
    return path, go(configured(path, stop_at_return=-1e4))


def test_a_run_ends_where_it_reaches_the_target_return(early):
    path, outcome = early
    assert (outcome.update, outcome.stopped_by) == (2, None)
    assert finished(path)["finished"]
    assert [line["update"] for line in told(path, "evals.jsonl")] == [0, 2, 2]
    with pytest.raises(ConfigError, match=r"reached stop_at_return=-10000;.*--stop-at-return"):
        resumed(path)
    with pytest.raises(ConfigError, match=r"reached stop_at_return=-10000;"):
        resumed(path, total_updates=12)


def test_what_a_kill_at_the_target_took_is_completed(early, tmp_path):
    path, lines = tmp_path / "x", told(early[0], "evals.jsonl")
    shutil.copytree(early[0], path)
    (path / "summary.json").unlink()
    assert resumed(path).update == 2
    assert told(path, "evals.jsonl") == lines
    assert finished(path)["finished"]


@pytest.mark.parametrize(
    ("scores", "failed", "over"),
    [
        ([-27.0, -28.0], {}, True),
        ([-27.0, -28.5], {}, False),
        ([-27.0, -28.5], {1: "losses/x is nan"}, True),
        ([-27.0, -28.5], {0: "losses/x is nan"}, False),
    ],
)
def test_seeds_end_when_each_that_has_not_failed_has_reached_the_target(scores, failed, over):
    config = configured(None, seeds=2, stop_at_return=-28.0)
    best = Best(np.array(scores), np.array([2, 4]), ())
    assert reached_target(config, best, np.arange(2), failed) is over


def test_a_contest_has_no_target_return(tmp_path):
    with pytest.raises(ConfigError, match=r"stop_at_return=-3 .*simple_tag teams play against"):
        go(configured(tmp_path / "x", env="mpe/simple_tag", stop_at_return=-3.0))
    assert not (tmp_path / "x").exists()


def test_a_new_rate_on_resume_is_used_and_recorded(early, tmp_path):
    path = tmp_path / "x"
    shutil.copytree(early[0], path)
    before = stored(path)["ppo"]["lr"]
    given = {"ppo": {"lr": 0.0125}, "total_updates": 4, "stop_at_return": None, "quiet": True}
    outcome = jmarl.train(resume=path, **given)
    # it decays linearly, over the old budget and the new one
    rates = [before, before * 5 / 6, 0.0125 * 2 / 4, 0.0125 * 1 / 4]
    np.testing.assert_allclose(outcome.metrics["charts/learning_rate"], rates, rtol=1e-6)
    assert stored(path)["ppo"]["lr"] == 0.0125
    (line,) = told(path, "changes.jsonl")
    assert line["after_update"] == 2
    assert line["changed"]["ppo.lr"] == [before, 0.0125]
    assert line["changed"]["stop_at_return"] == [-1e4, None]
    with pytest.raises(ConfigError, match=r"ppo\.epochs was 1, now 2"):
        jmarl.train(resume=path, ppo={"epochs": 2}, total_updates=5)
