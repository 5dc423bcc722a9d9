"""Sweeps, trained for real: on disk, cut short, resumed; halving and exchange."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console

import jmarl
from jmarl.config.sweep_values import build, read_sweep
from jmarl.config.train_config import build as build_run
from jmarl.config.train_config import read_preset
from jmarl.errors import ConfigError
from jmarl.sweeps.plan import plan
from jmarl.sweeps.results import write_results
from jmarl.sweeps.run import run_sweep
from tests.support.tiny_runs import TINY, digest, told

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


def test_the_winner_is_trained_once_more_with_fresh_seeds(halved, tmp_path):
    """And a resume that was killed in the middle of it gives the same."""
    ranking = write_results(halved, plan(build(read_sweep(halved / "sweep.yaml"))))
    assert ranking.best.steps == 8 * 20
    seeds = sorted((halved / "confirmation").glob("seed_*"))
    assert [seed.name for seed in seeds] == ["seed_1", "seed_2", "seed_3"]
    assert {read_preset(seed / "config.yaml")["ppo"]["lr"] for seed in seeds} == {
        ranking.best.settings["ppo.lr"]
    }
    lasts = [told(seed, "evals.jsonl")[-1] for seed in seeds]
    assert [line["update"] for line in lasts] == [8, 8, 8]
    mean = np.mean([line["eval/return_mean"] for line in lasts])
    np.testing.assert_allclose(ranking.confirmed.iqm, mean)
    again = tmp_path / "again"
    shutil.copytree(halved, again)
    shutil.rmtree(again / "confirmation" / "checkpoints" / "update_8")
    (again / "confirmation" / "finished.json").unlink()
    assert go_on(again)[0].stopped_by is None
    assert digest(again / "confirmation", 8) == digest(halved / "confirmation", 8)
    for seed in seeds:
        assert told(again / "confirmation" / seed.name, "evals.jsonl") == told(seed, "evals.jsonl")


def test_a_dropped_member_keeps_its_best_policy(halved):
    for member in sorted(halved.glob("member_*")):
        policy = jmarl.load_policy(member)
        assert policy.act(np.zeros((3, 18))).action.shape == (3,)


@pytest.mark.long
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


def go_on(path):
    sweep = build({**read_sweep(path / "sweep.yaml"), "resume": path, "quiet": True})
    members = plan(sweep)
    return run_sweep(sweep, members, Console(quiet=True)), members


def assert_same_sweeps(one, other):
    group = "group_0"
    assert digest(one / group, 8) == digest(other / group, 8)
    exchanges = "group_0/pbt.jsonl"
    assert (one / exchanges).read_text(encoding="utf-8") == (other / exchanges).read_text(
        encoding="utf-8"
    )
    for ours in sorted(one.glob("member_*")):
        theirs = other / ours.name
        for name in ("metrics.jsonl", "evals.jsonl"):
            assert told(ours, name) == told(theirs, name)
        hyper = [
            json.loads((path / "summary.json").read_text(encoding="utf-8"))["hyper"]
            for path in (ours, theirs)
        ]
        assert hyper[0] == hyper[1]


@pytest.mark.long
def test_a_resumed_exchange_is_the_uninterrupted_one_bit_for_bit(tmp_path):
    """From the checkpoint of the first exchange, and from a kill just before the end."""
    whole = tmp_path / "whole"
    kept = RUN | {"keep_checkpoints": 9}
    swept(whole, base=kept, pbt=True, pbt_every=3, members_per_batch=4)
    for name, lost in (("cut", ("update_4", "update_6", "update_8")), ("end", ())):
        again = tmp_path / name
        shutil.copytree(whole, again)
        (again / "group_0" / "finished.json").unlink()
        for update in lost:
            shutil.rmtree(again / "group_0" / "checkpoints" / update, ignore_errors=True)
        assert go_on(again)[0].stopped_by is None
        assert (again / "group_0" / "finished.json").is_file()
        assert_same_sweeps(again, whole)


@pytest.mark.long
def test_a_member_that_diverges_does_not_win(tmp_path):
    path = tmp_path / "sweep"
    base = RUN | {"total_updates": 4, "ppo": TINY["ppo"] | {"lr_schedule": "constant"}}
    grid = {"lr": [1e30, 1e-3]}
    _, members = swept(path, base=base, grid=grid, seeds=2, members_per_batch=4, halving=True)
    ranking = write_results(path, members)
    assert [one.settings["ppo.lr"] for one in ranking.settings] == [1e-3, 1e30]
    assert [one.failed for one in ranking.settings] == [0, 2]
    assert ranking.confirmed.settings == {"ppo.lr": 1e-3}
    assert "losses/" in ranking.settings[1].reasons[0]
    assert read_preset(path / "best.yaml")["ppo"]["lr"] == 1e-3


def test_a_group_may_have_one_member_and_may_fail_as_a_whole(tmp_path):
    """Where only static options differ, each value is a group; the others go on."""
    path = tmp_path / "sweep"
    ppo = TINY["ppo"] | {"lr_schedule": "constant", "lr": 1e30}
    base = RUN | {"total_updates": 4, "ppo": ppo}
    _, members = swept(path, base=base, grid={"on_nonfinite": ["stop", "skip"]})
    assert len(list(path.glob("group_*"))) == 2
    assert last_updates(path) == [0, 4]
    assert jmarl.load_policy(path / "member_001", which="latest").config.on_nonfinite == "skip"
    first, second = write_results(path, members).settings
    assert (first.settings["on_nonfinite"], second.failed) == ("skip", 1)
    assert "losses/" in second.reasons[0]
    assert go_on(path)[0].stopped_by is None  # there is nothing left to do


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


@pytest.mark.long
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
