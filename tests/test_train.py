"""`python -m jmarl.train` as a user runs it."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest
import yaml

TINY = [
    *("--num-envs", "4", "--rollout-length", "5", "--total-updates", "3", "--log-every", "2"),
    *("--eval-episodes", "4", "--net.n-embd", "8", "--ppo.num-minibatches", "1"),
    *("--ppo.epochs", "1", "--no-compilation-cache"),
]


def train(*arguments, cwd):
    command = [sys.executable, "-m", "jmarl.train", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    cwd = tmp_path_factory.mktemp("train")
    return cwd, train(*TINY, "--run-dir", "mine", cwd=cwd)


def test_a_run_ends_well_and_says_where_it_is(finished):
    _, done = finished
    assert done.returncode == 0, done.stderr
    assert "run: mine" in done.stdout
    assert "greedy return over 4 episodes" in done.stdout


def test_the_resolved_configuration_is_kept(finished):
    cwd, _ = finished
    kept = yaml.safe_load((cwd / "mine" / "config.yaml").read_text())
    assert kept["total_updates"] == 3
    assert kept["ppo"]["gamma"] == 0.95


def test_metrics_are_lines_of_json(finished):
    cwd, _ = finished
    lines = [json.loads(line) for line in (cwd / "mine" / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [2, 3]
    assert [line["steps"] for line in lines] == [40, 60]
    assert {"losses/policy_loss", "losses/value_loss", "charts/SPS"} <= set(lines[1])


def test_evaluations_are_lines_of_json(finished):
    """Before, after, and the best parameters over ten times the episodes."""
    cwd, _ = finished
    lines = [json.loads(line) for line in (cwd / "mine" / "evals.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [0, 3, 3]
    for line in lines[:2]:
        for play in ("eval", "eval_sampled"):
            low, iqm, high = (line[f"{play}/return_{x}"] for x in ("iqm_low", "iqm", "iqm_high"))
            assert line[f"{play}/return_min"] <= low <= iqm <= high <= line[f"{play}/return_max"]
            assert line[f"{play}/length_mean"] == 25
            agents = [line[f"{play}/return_mean/agent_{i}"] for i in range(3)]
            np.testing.assert_allclose(sum(agents), line[f"{play}/return_mean"], rtol=1e-5)
    assert lines[2]["absolute"]
    assert lines[2]["best_update"] == 3


def test_evaluations_are_written_for_marl_eval(finished):
    cwd, _ = finished
    tree = json.loads((cwd / "mine" / "marl_eval.json").read_text())
    seed = tree["mpe"]["simple_spread"]["mat"]["seed_0"]
    assert list(seed) == ["step_0", "step_1", "absolute_metrics"]
    assert seed["step_1"]["step_count"] == 60
    assert len(seed["step_1"]["mean_episode_return"]) == 1


def test_the_run_says_what_it_was_made_with_and_how_it_ended(finished):
    cwd, _ = finished
    made = json.loads((cwd / "mine" / "versions.json").read_text())
    assert made["packages"]["jax"] == jax.__version__
    summary = json.loads((cwd / "mine" / "summary.json").read_text())
    assert summary["finished"]
    assert (summary["updates"], summary["steps"]) == (3, 60)
    assert list((cwd / "mine" / "tensorboard").iterdir())


def test_another_run_is_not_overwritten(finished):
    cwd, _ = finished
    before = (cwd / "mine" / "metrics.jsonl").read_text()
    again = train(*TINY, "--run-dir", "mine", cwd=cwd)
    assert again.returncode == 2
    assert "run_dir='mine' exists" in again.stderr
    assert (cwd / "mine" / "metrics.jsonl").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--env", "mpe/simple_spred"], "did you mean 'mpe/simple_spread'"),
        (["--ppo.clip-ep", "0.1"], "did you mean --ppo.clip-eps?"),
        (["--ppo.gamma", "1.5"], "ppo.gamma=1.5 is refused"),
        (["--num-envs", "many"], "--num-envs: invalid literal for int() with base 10: 'many'"),
        (["no.yaml"], "'no.yaml' cannot be read"),
    ],
)
def test_bad_input_is_one_message_and_leaves_nothing_behind(arguments, words, tmp_path):
    done = train(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
