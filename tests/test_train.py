"""`python -m jmarl.train` as a user runs it."""

import json
import subprocess
import sys

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
    assert [line["update"] for line in lines] == [0, 2, 3]
    assert [line["steps"] for line in lines] == [0, 40, 60]
    assert {"losses/policy_loss", "losses/value_loss", "charts/SPS"} <= set(lines[1])
    assert "eval/return_greedy" in lines[0]
    assert "eval/return_greedy" in lines[-1]


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
