"""Sweeps, trained for real: on disk, cut short, resumed; halving and exchange."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console

import jmarl
from jmarl.config.sweep_options import build
from jmarl.config.train_config import build as build_run
from jmarl.config.train_config import read_preset
from jmarl.errors import ConfigError
from jmarl.sweeps.plan import plan
from jmarl.sweeps.results import write_results
from jmarl.sweeps.run import run_sweep
from tests.support.tiny_runs import TINY, told

RUN = {k: v for k, v in TINY.items() if k != "quiet"} | {"algorithm": "ippo", "total_updates": 8}
LR = [1e-3, 5e-3, 1e-2, 2e-2]


pytestmark = pytest.mark.usefixtures("unwatched")


def swept(path, **values):
    sweep = build({"base": RUN, "grid": {"lr": LR}, "sweep_dir": path, "quiet": True} | values)
    members = plan(sweep)
    return run_sweep(sweep, members, Console(quiet=True)), members


def last_updates(path):
    return [told(p, "evals.jsonl")[-1]["update"] for p in sorted(path.glob("member_*"))]


@pytest.fixture(scope="module")
def halved(tmp_path_factory, unwatched):
    path = tmp_path_factory.mktemp("halved") / "sweep"
    swept(path, halving=True, rungs=2, members_per_batch=2)
    return path


def test_the_losers_of_each_rung_go_no_further(halved):
    reached = last_updates(halved)
    assert sorted(reached) == [2, 2, 4, 8]
    lines = [told(p, "evals.jsonl") for p in sorted(halved.glob("member_*"))]
    at = {
        rung: {
            i: line["eval/return_mean"]
            for i, own in enumerate(lines)
            for line in own
            if line["update"] == rung
        }
        for rung in (2, 4)
    }
    for rung, scores in at.items():
        on = {i for i in scores if reached[i] > rung}
        assert min(scores[i] for i in on) >= max(scores[i] for i in scores if i not in on)


def test_a_dropped_member_keeps_its_best_policy(halved):
    for member in sorted(halved.glob("member_*")):
        policy = jmarl.load_policy(member)
        assert policy.act(np.zeros((3, 18))).action.shape == (3,)


def test_pbt_copies_and_changes(tmp_path):
    path = tmp_path / "sweep"
    _, members = swept(path, pbt=True, pbt_every=3, members_per_batch=4)
    lines = [
        json.loads(line)
        for line in (path / "group_0" / "pbt.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [line["update"] for line in lines] == [3, 6]
    rates = [
        json.loads((p / "summary.json").read_text(encoding="utf-8"))["hyper"]["lr"]
        for p in sorted(path.glob("member_*"))
    ]
    expected = list(LR)
    for line in lines:
        factor = line["hyper"]["lr"] / expected[line["copies"]]
        assert min(abs(factor - 1.25), abs(factor - 0.8)) < 1e-6
        expected[line["member"]] = line["hyper"]["lr"]
    assert rates == pytest.approx(expected, rel=1e-6)
    best = write_results(path, members).best
    chosen = build_run(read_preset(path / "best.yaml")).ppo.lr
    assert chosen == pytest.approx(rates[best.setting], rel=1e-6)
    again = tmp_path / "again"
    swept(again, pbt=True, pbt_every=3, members_per_batch=4)
    assert (again / "group_0" / "pbt.jsonl").read_text(encoding="utf-8") == (
        path / "group_0" / "pbt.jsonl"
    ).read_text(encoding="utf-8")


def test_a_group_may_have_one_member(tmp_path):
    """Where only static options differ, each value is a group."""
    path = tmp_path / "sweep"
    base = RUN | {"total_updates": 2}
    swept(path, base=base, grid={"num_envs": [4, 6]})
    assert last_updates(path) == [2, 2]
    assert len(list(path.glob("group_*"))) == 2
    assert jmarl.load_policy(path / "member_001", which="latest").config.num_envs == 6


def test_contests_have_no_winner_to_select(tmp_path):
    base = RUN | {"env": "mpe/simple_tag"}
    with pytest.raises(ConfigError, match="teams play against each other"):
        swept(tmp_path / "sweep", base=base, halving=True)
    assert not (tmp_path / "sweep").exists()


OPTIONS = (
    *("--base", "algorithm=ippo", "total_updates=400", "num_envs=4", "rollout_length=5"),
    *("log_every=1", "eval_every=200", "eval_episodes=4", "net.hidden=[8]", "ppo.epochs=1"),
    *("ppo.num_minibatches=1", "checkpoint_every=20"),
    *("--grid", "lr=1e-3,1e-2", "--seeds", "2", "--members-per-batch", "4", "--no-plots"),
)


def command(*arguments, cwd):
    line = [sys.executable, "-m", "jmarl.sweep", *arguments]
    env = os.environ | {"XDG_CACHE_HOME": str(cwd / "cache")}
    return subprocess.Popen(
        line, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )


def test_a_sweep_that_was_stopped_goes_on(tmp_path):
    running = command(*OPTIONS, "--sweep-dir", "mine", cwd=tmp_path)
    lines = tmp_path / "mine" / "member_000" / "metrics.jsonl"
    until = time.monotonic() + 300
    while not (lines.exists() and lines.read_text(encoding="utf-8").count("\n") > 30):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    out, errors = running.communicate(timeout=240)
    assert running.returncode == 128 + signal.SIGTERM, errors
    assert "python -m jmarl.sweep --resume mine" in out
    done = lines.read_text(encoding="utf-8").count("\n")
    assert done < 400
    running = command("--resume", "mine", cwd=tmp_path)
    out, errors = running.communicate(timeout=240)
    assert running.returncode == 0, errors
    assert [line["update"] for line in told(lines.parent, "metrics.jsonl")] == list(range(1, 401))
    ranked = json.loads((tmp_path / "mine" / "ranking.json").read_text(encoding="utf-8"))
    assert {row["case"] for row in ranked["rows"]} == {"setting/0", "setting/1"}
    best = build_run(read_preset(tmp_path / "mine" / "best.yaml"))
    assert best.ppo.lr in (1e-3, 1e-2)
    assert not (tmp_path / "mine" / "plots").exists()
