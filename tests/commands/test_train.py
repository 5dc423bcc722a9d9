"""`python -m jmarl.train` as a user runs it."""

import json
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import yaml
from PIL import Image

from jmarl.commands import train as train_command
from jmarl.runs.files import read_lines
from tests.support.programs import cached
from tests.support.tiny_runs import same_runs

TINY = [
    *("--num-envs", "4", "--rollout-length", "5", "--total-updates", "3", "--log-every", "2"),
    *("--eval-episodes", "4", "--ppo.num-minibatches", "1", "--ppo.epochs", "1"),
]


def train(*arguments, cwd):
    command = [sys.executable, "-m", "jmarl.train", *arguments]
    options = {"cwd": cwd, "env": cached(), "encoding": "utf-8", "timeout": 300}
    return subprocess.run(command, capture_output=True, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    cwd = tmp_path_factory.mktemp("train")
    return cwd, train(*TINY, "--net.n-embd", "8", "--run-dir", "mine", cwd=cwd)


def test_a_run_ends_well_and_says_where_it_is(finished):
    _, done = finished
    assert done.returncode == 0, done.stderr
    assert "run: mine" in done.stdout
    assert "greedy return over 4 episodes" in done.stdout


def test_the_resolved_configuration_is_kept(finished):
    cwd, _ = finished
    kept = yaml.safe_load((cwd / "mine" / "config.yaml").read_text(encoding="utf-8"))
    assert kept["total_updates"] == 3
    assert kept["ppo"]["gamma"] == 0.95


def test_metrics_are_lines_of_json(finished):
    cwd, _ = finished
    lines = [
        json.loads(line)
        for line in (cwd / "mine" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [line["update"] for line in lines] == [2, 3]
    assert [line["steps"] for line in lines] == [40, 60]
    assert {"losses/policy_loss", "losses/value_loss", "charts/SPS"} <= set(lines[1])


def test_evaluations_are_lines_of_json(finished):
    """Before, after, and the best parameters over ten times the episodes."""
    cwd, _ = finished
    lines = [
        json.loads(line)
        for line in (cwd / "mine" / "evals.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [line["update"] for line in lines] == [0, 3, 3]
    for line in lines[:2]:
        for play in ("eval", "eval_sampled"):
            low, iqm, high = (line[f"{play}/return_{x}"] for x in ("iqm_low", "iqm", "iqm_high"))
            assert low <= iqm <= high
            assert line[f"{play}/return_min"] <= iqm <= line[f"{play}/return_max"]
            assert line[f"{play}/length_mean"] == 25
            agents = [line[f"{play}/return_mean/agent_{i}"] for i in range(3)]
            np.testing.assert_allclose(sum(agents), line[f"{play}/return_mean"], rtol=1e-5)
    assert lines[2]["absolute"]
    assert lines[2]["best_update"] == 3


def test_evaluations_are_written_for_marl_eval(finished):
    cwd, _ = finished
    tree = json.loads((cwd / "mine" / "marl_eval.json").read_text(encoding="utf-8"))
    seed = tree["mpe"]["simple_spread"]["mat"]["seed_0"]
    assert list(seed) == ["step_0", "step_1", "absolute_metrics"]
    assert seed["step_1"]["step_count"] == 60
    assert len(seed["step_1"]["mean_episode_return"]) == 1


def test_the_run_says_what_it_was_made_with_and_how_it_ended(finished):
    cwd, _ = finished
    made = json.loads((cwd / "mine" / "versions.json").read_text(encoding="utf-8"))
    assert made["packages"]["jax"] == jax.__version__
    summary = json.loads((cwd / "mine" / "summary.json").read_text(encoding="utf-8"))
    assert summary["finished"]
    assert (summary["updates"], summary["steps"]) == (3, 60)
    assert list((cwd / "mine" / "tensorboard").iterdir())


def test_the_run_ends_with_a_picture(finished):
    cwd, done = finished
    assert "replay of the best policy: mine/replay.gif" in done.stdout
    with Image.open(cwd / "mine" / "replay.gif") as picture:
        assert picture.n_frames == 26


def interrupted(number, cwd):
    """A run that gets a signal once it trains; the exit code and what it said."""
    many = [a if a != "3" else "40" for a in TINY]
    fast = [
        "--algorithm",
        "ippo",
        "--net.hidden",
        "8",
        "--log-every",
        "1",
        "--no-gif",
    ]  # to compile
    command = [sys.executable, "-m", "jmarl.train", *many, *fast]
    options = {"cwd": cwd, "env": cached(), "encoding": "utf-8", "stdout": subprocess.PIPE}
    with subprocess.Popen([*command, "--run-dir", "mine"], **options) as process:
        while process.poll() is None and not read_lines(cwd / "mine" / "evals.jsonl"):
            time.sleep(0.01)
        process.send_signal(number)
        out = process.communicate(timeout=120)[0]
    return process.returncode, out, command, options


@pytest.mark.long
def test_after_a_signal_it_goes_on_as_if_nothing_had_been(tmp_path):
    code, out, command, options = interrupted(signal.SIGTERM, tmp_path)
    assert code == 143
    assert "go on: python -m jmarl.train --resume mine" in out
    resume = [sys.executable, "-m", "jmarl.train", "--resume", "mine"]
    assert subprocess.run(resume, **options).returncode == 0
    assert subprocess.run([*command, "--run-dir", "whole"], **options).returncode == 0
    same_runs(tmp_path / "mine", tmp_path / "whole", 40)


@pytest.mark.long
def test_control_c_saves_too(tmp_path):
    code, out, _, _ = interrupted(signal.SIGINT, tmp_path)
    assert code == 130
    assert "saved" in out
    assert list((tmp_path / "mine" / "checkpoints").glob("update_*"))


def test_another_run_is_not_overwritten(finished):
    cwd, _ = finished
    before = (cwd / "mine" / "metrics.jsonl").read_text(encoding="utf-8")
    again = train(*TINY, "--net.n-embd", "8", "--run-dir", "mine", cwd=cwd)
    assert again.returncode == 2
    assert "run_dir='mine' exists" in again.stderr
    assert (cwd / "mine" / "metrics.jsonl").read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--env", "mpe/simple_spred"], "did you mean 'mpe/simple_spread'"),
        (["--ppo.clip-ep", "0.1"], "did you mean --ppo.clip-eps?"),
        (["--ppo.gamma", "1.5"], "ppo.gamma=1.5 is refused"),
        (["--num-envs", "many"], "--num-envs 'many' is not a whole number;"),
        (["no.yaml"], "'no.yaml' cannot be read"),
    ],
)
def test_bad_input_is_one_message_and_leaves_nothing_behind(
    arguments, words, called, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, said = called(train_command, *arguments)
    assert code == 2
    assert words in said
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1
    assert not list(tmp_path.iterdir())
