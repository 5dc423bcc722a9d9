"""The package as a user meets it: imports, refusals, the commands of the README."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import jmarl

ROOT = Path(__file__).parent.parent


def run(*command: str, timeout: int = 300) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=timeout, cwd=ROOT)


def test_import_brings_none_of_the_heavy_packages():
    listing = "import jmarl, sys; jmarl.make; print(*sys.modules, sep='\\n')"
    loaded = set(run(sys.executable, "-c", listing).stdout.split())
    assert "jmarl.envs.base" in loaded
    for heavy in ("jaxmarl", "gymnax", "torch", "matplotlib", "mpe2", "brax"):
        assert heavy not in loaded


def test_loading_a_policy_imports_nothing_that_trains_or_draws():
    listing = "import jmarl, sys; jmarl.load_policy; print(*sys.modules, sep='\\n')"
    loaded = set(run(sys.executable, "-c", listing).stdout.split())
    assert "jmarl.evaluation.trained_policy" in loaded
    unneeded = {"jmarl.runs.loop", "jmarl.runs.progress", "jmarl.commands.arguments", "tyro"}
    unneeded |= {"tensorboardX", "matplotlib", "jmarl.replays.replay", "tensorflow_probability"}
    assert not loaded & unneeded


def test_the_commands_are_listed():
    listed = run(sys.executable, "-m", "jmarl").stdout.splitlines()
    assert len(listed) == 8  # with how to use them
    for line in listed[1:]:
        module = line.split()[2]
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file()


def test_a_command_is_no_module_to_import():
    """So that `jmarl.train` stays the function."""
    done = run(sys.executable, "-c", "import jmarl.train")
    assert done.returncode == 1
    assert "run `python -m jmarl.train`. The function is `jmarl.train()`." in done.stderr
    assert callable(jmarl.train)


def test_version_is_that_of_the_distribution():
    import importlib.metadata

    assert importlib.metadata.version("jmarl") == jmarl.__version__


def test_wheel_holds_every_module(tmp_path):
    built = run(
        sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", str(tmp_path), "."
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("jmarl-*.whl")
    listing = run(sys.executable, "-m", "zipfile", "-l", str(wheel)).stdout
    shipped = [
        path for kind in ("*.py", "*.html", "py.typed") for path in (ROOT / "jmarl").rglob(kind)
    ]
    assert ROOT / "jmarl/py.typed" in shipped  # type checkers read the annotations
    for path in shipped:
        assert str(path.relative_to(ROOT)) in listing


def test_deprecations_that_our_own_code_meets_are_errors(pytestconfig):
    """Those within other packages are not."""
    (lenient,) = (line for line in pytestconfig.getini("filterwarnings") if "default" in line)
    elsewhere = re.compile(lenient.split(":", 3)[3])
    ours = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for folder in ("jmarl", "benchmarks", "tests")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert [name for name in ours if elsewhere.match(name)] == []
    for other in ("jax._src.core", "tensorflow_probability", "browsers", "jmarlin", "torch.nn"):
        assert elsewhere.match(other)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("simple_spread", {}, ["no family", "mpe/simple_spread"]),
        ("mpe/", {}, ["no family"]),
        ("mpee/simple_spread", {}, ["mpee", "did you mean 'mpe'", "gymnax"]),
        ("mpe/simple_spred", {}, ["did you mean 'mpe/simple_spread'", "mpe/simple_crypto"]),
        ("mpe/simple_spread", {"num_agent": 4}, ["'num_agent'", "did you mean 'num_agents'"]),
        ("mpe/simple_crypto", {"num_agents": 4}, ["'num_agents'", "episode_length"]),
        ("mpe/simple_spread", {"spec": 3}, ["unknown option of mpe/simple_spread 'spec'"]),
        ("mpe/simple_spread", {"scenario": 3}, ["'scenario'", "Valid: actions"]),
        ("mpe/simple_spread", {"N": 3, "num_agents": 3}, ["N=3 and num_agents=3", "one of them"]),
        (
            "mpe/simple",
            {"max_cycles": 3, "episode_length": 4},
            ["max_cycles=3", "episode_length=4"],
        ),
        ("mpe/simple_tag", {"N": 3}, ["'N'", "num_good"]),
        ("mpe/simple_spread", {"N": 0}, ["num_agents=0", "at least 1"]),
        ("mpe/simple", {"episode_length": 2**31}, ["episode_length=2147483648", "2147483647"]),
        ("mpe/simple_tag", {"num_agent_neighbors": 0}, ["num_agent_neighbors=0", "at least 1"]),
        ("mpe/simple_tag", {"num_landmark_neighbors": True}, ["num_landmark_neighbors=True"]),
        ("mpe/simple_line", {"terminate_on_success": 1}, ["terminate_on_success=1", "True nor"]),
        ("mpe/simple_tag", {"curriculum_stage": 1}, ["curriculum_stage=1", "curriculum=True"]),
        (
            "mpe/simple_spread",
            {"curriculum": True, "curriculum_stage": 2},
            ["curriculum_stage=2", "at most 1"],
        ),
        (
            "mpe/simple_spread",
            {"dialect": "onpolicy", "num_agent_neighbors": 2},
            ["num_agent_neighbors=2", "dialect='onpolicy'"],
        ),
        ("mpe/simple_push", {"benchmark_data": "yes"}, ["benchmark_data='yes'", "True nor False"]),
        ("mpe/collect_treasure", {"num_deposits": 7}, ["num_deposits=7", "at most 6"]),
        ("mpe/collect_treasure", {"num_collectors": 0}, ["num_collectors=0", "at least 1"]),
        ("mpe/simple_spread", {"num_agents": 0}, ["num_agents=0", "at least 1"]),
        ("mpe/simple_spread", {"num_agents": 2.5}, ["num_agents=2.5", "at least 1"]),
        ("mpe/simple_spread", {"num_agents": True}, ["num_agents=True"]),
        ("mpe/simple_spread", {"num_landmarks": -1}, ["num_landmarks=-1", "at least 1"]),
        ("mpe/simple_spread", {"local_ratio": 1.5}, ["local_ratio=1.5", "0.0 to 1.0"]),
        ("mpe/simple_spread", {"local_ratio": float("nan")}, ["local_ratio=nan"]),
        ("mpe/simple_reference", {"local_ratio": -0.1}, ["local_ratio=-0.1", "0.0 to 1.0"]),
        ("mpe/simple_spread", {"episode_length": 0}, ["episode_length=0", "at least 1"]),
        ("mpe/simple_tag", {"episode_length": -25}, ["episode_length=-25", "at least 1"]),
        ("mpe/simple_tag", {"num_good": 0}, ["num_good=0", "at least 1"]),
        ("mpe/simple_tag", {"num_adversaries": 0}, ["num_adversaries=0"]),
        ("mpe/simple_tag", {"num_obstacles": -1}, ["num_obstacles=-1", "at least 0"]),
        ("mpe/simple_world_comm", {"num_food": 0}, ["num_food=0", "at least 1"]),
        ("mpe/simple_world_comm", {"num_forests": "2"}, ["num_forests='2'", "at least 0"]),
        ("mpe/simple_adversary", {"num_good": 0}, ["num_good=0"]),
        ("mpe/simple_spread", {"actions": "fly"}, ["actions='fly'", "continuous"]),
        ("mpe/simple_spread", {"agent_ids": 1}, ["agent_ids=1"]),
        ("mpe/simple_spread", {"dialect": "mpe3"}, ["dialect='mpe3'", "onpolicy"]),
        ("mpe/simple_tag", {"dialect": "onpolicy"}, ["onpolicy", "simple_tag"]),
        ("probe/constnt", {}, ["did you mean 'probe/constant'"]),
        ("probe/action", {"actions": "multidiscrete"}, ["actions='multidiscrete'"]),
        ("gymnax/Pendulum", {}, ["did you mean 'gymnax/Pendulum-v1'"]),
        ("gymnax/Pendulum-v1", {"gravity": 9}, ["'gravity'", "max_steps_in_episode"]),
        ("jaxmarl/MPE_simple_spread", {}, ["did you mean 'jaxmarl/MPE_simple_spread_v3'"]),
        ("jaxmarl/HeuristicEnemySMAX", {"map_name": "3n"}, ["did you mean '3m'"]),
        ("jaxmarl/overcooked", {"layout": "cramped"}, ["cramped_room"]),
        ("jaxmarl/coin_game", {"num_agents": 3}, ["num_agents"]),
        ("jaxmarl/switch_riddle", {"num_agents": 2}, ["minimum number of agents"]),
        ("dm_control/cartpole", {}, ["'dm_control/cartpole'", "dm_control/DOMAIN/TASK"]),
        ("dm_control/Cartpole/../x", {}, ["dm_control/DOMAIN/TASK"]),
        ("jaxmarl/JaxRobotarium_warehouse", {}, ["jaxrobotarium", "is not installed"]),
        ("jaxmarl/LearnedPolicyEnemySMAX", {}, ["needs the enemies' network"]),
    ],
)
def test_refusals_name_the_key_the_value_and_what_would_be_right(name, options, words, foreign):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the words are checked below)
        jmarl.make(name, **options)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("extra", ["playground", "brax"])
def test_a_missing_package_is_named_with_its_extra(extra, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=rf'pip install "jmarl\[{extra}\]"'):
        jmarl.make(f"{extra}/anything")
