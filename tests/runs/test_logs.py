"""Lines and curves of many members, with few open files; marl-eval's layout."""

import json
import os
import resource

import pytest
from tensorboardX.proto.event_pb2 import SessionLog

from jmarl.runs.files import write_lines
from jmarl.runs.logs import Log, write_marl_eval
from tests.support.tensorboard_files import events
from tests.support.tiny_runs import configured, told

MEMBERS, FILES = 130, 256


@pytest.fixture
def few_files():
    """At most 256 open files, as `ulimit -n 256` has it, or what macOS allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files():
    return len(os.listdir("/dev/fd"))


def test_members_write_lines_and_curves_without_open_files(few_files, tmp_path):
    config, before, logs = configured(None, tensorboard=True), open_files(), []
    for member in range(MEMBERS):
        (tmp_path / str(member)).mkdir()
        logs.append(Log(tmp_path / str(member), config, -1))
    for update in (1, 2):
        for member, log in enumerate(logs):
            about = {"update": update, "steps": 20 * update, "seconds": 0.5}
            log.metrics(about | {"losses/x": float(member)})
            log.evaluation(about | {"eval/return_mean": -float(update)})
    assert open_files() <= before + 1
    for member in (0, MEMBERS - 1):
        path = tmp_path / str(member)
        assert [line["losses/x"] for line in told(path, "metrics.jsonl")] == [member, member]
        first, *found = events(path / "tensorboard")
        assert first.file_version == "brain.Event:2"
        assert [
            (e.step, e.summary.value[0].tag, e.summary.value[0].simple_value) for e in found
        ] == [
            *((20, "losses/x", member), (20, "eval/return_mean", -1)),
            *((40, "losses/x", member), (40, "eval/return_mean", -2)),
        ]
    again = Log(tmp_path / "0", config, 1)  # resumes after update 1
    again.metrics({"update": 2, "steps": 40, "losses/x": 0.0})
    start = [e for e in events(tmp_path / "0" / "tensorboard") if e.HasField("session_log")]
    assert [(e.step, e.session_log.status) for e in start] == [(21, SessionLog.START)]


def evaluated(update, **figures):
    about = {"update": update, "steps": 20 * update, "seconds": 0.5 * update}
    return about | {name.replace("__", "/"): value for name, value in figures.items()}


def tree_of(tmp_path, lines, **config):
    write_lines(tmp_path / "evals.jsonl", lines)
    write_marl_eval(tmp_path, configured(None, **config), {3: tmp_path})
    return json.loads((tmp_path / "marl_eval.json").read_text(encoding="utf-8"))


def test_opposing_teams_are_tasks_of_their_own_in_marl_evals_layout(tmp_path):
    teams = {"teams": ["adversary", "good"]}
    figures = {"eval__return_mean__adversary": 53.5, "eval__return_mean__good": -26.0}
    best = {"absolute__return_mean__adversary": 50.0, "absolute__return_mean__good": -20.0}
    lines = [evaluated(0, **teams, **figures), evaluated(2, **teams, **best, absolute=True)]
    tree = tree_of(tmp_path, lines, env="mpe/simple_tag")
    at_start = {"step_count": 0, "elapsed_time": 0.0}
    assert tree == {
        "mpe": {
            f"simple_tag_{team}": {
                "ippo": {
                    "seed_3": {
                        "step_0": {**at_start, "mean_episode_return": [first]},
                        "absolute_metrics": {"mean_episode_return": [last]},
                    }
                }
            }
            for team, first, last in (("adversary", 53.5, 50.0), ("good", -26.0, -20.0))
        }
    }


def test_one_team_is_one_task(tmp_path):
    tree = tree_of(tmp_path, [evaluated(0, eval__return_mean=-9.0)])
    seed = tree["mpe"]["simple_spread"]["ippo"]["seed_3"]
    assert seed["step_0"]["mean_episode_return"] == [-9.0]
