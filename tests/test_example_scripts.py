"""The scripts of docs/examples, run as a user runs them, with small budgets."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import jmarl
from tests.support.programs import cached
from tests.support.tiny_runs import configured, go

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"


def python(*arguments, cwd):
    """What a command prints."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=300, cwd=cwd, env=cached()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def last_number(text):
    return float(re.findall(r"-?\d+\.\d+", text)[-1])


@pytest.mark.long
def test_a_world_in_numpy_is_trained_from_python(tmp_path):
    said = python(EXAMPLES / "numpy_world.py", 800, cwd=tmp_path)
    assert -4 <= last_number(said) < 2  # two agents, at most twenty steps at −0.1


@pytest.mark.long
@pytest.mark.usefixtures("registry")
def test_a_world_in_numpy_is_trained_from_the_shell(tmp_path):
    options = "--algorithm ippo --num-envs 2 --rollout-length 4 --total-updates 1 --quiet "
    options += "--ppo.num-minibatches 1 --eval-episodes 2 --no-gif --devices 1 --net.hidden 4 "
    options += "--env-options size 3"
    world = ("--plugin", EXAMPLES / "numpy_world.py", "--env", "pettingzoo/numpy_world")
    python("-m", "jmarl.train", *world, *options.split(), "--run-dir", "run", cwd=tmp_path)
    policy = jmarl.load_policy(tmp_path / "run")
    assert policy.spec.agents == ("lookout", "runner")
    assert policy.spec.obs_sizes == (2, 6)
    assert [space.n for space in policy.spec.action_spaces] == [4, 5]
    assert policy.config.env_options == {"size": 3}


@pytest.mark.long
@pytest.mark.parametrize("library", ["jmarl", "jaxmarl"])
def test_a_script_in_jaxmarl_s_form_runs_on_both_worlds(library, tmp_path):
    said = python(EXAMPLES / "jaxmarl_loop.py", "--library", library, "--updates", 2, cwd=tmp_path)
    assert f"{library}: reward" in said
    assert -1.6 < last_number(said) < -0.7  # what random actions earn


@pytest.mark.long
def test_a_policy_plays_in_mpe2(tmp_path):
    """A recurrent one, among agents who see and do different things."""
    go(configured(tmp_path / "run", "rmappo", env="mpe/simple_speaker_listener", total_updates=1))
    said = python(EXAMPLES / "policy_in_mpe2.py", "run", 2, cwd=tmp_path)
    assert "mean return of 2 episodes" in said
    assert last_number(said) < 0
