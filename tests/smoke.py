"""Every algorithm through every command, as `.ci/smoke` runs it on other versions of Python and of
the packages. Not part of the suite, which tests all this in more depth; needs no torch."""

from functools import partial

import jax
import pytest

from jmarl.commands import evaluate, export, render, report, train
from jmarl.runs.files import read_lines

ALGORITHMS = (
    *("mat", "mat_dec", "mat_encoder", "mat_decoder", "mat_gru"),
    *("mappo", "ippo", "rmappo", "rippo", "ppo", "happo", "rhappo"),
)
TINY = [
    *("--num-envs", 4, "--rollout-length", 5, "--total-updates", 2, "--eval-episodes", 4),
    *("--ppo.epochs", 1, "--ppo.num-minibatches", 1, "--log-every", 1, "--devices", 1),
]
MAT = ("--net.n-embd", 8)
OTHERS = ("--net.hidden", 8)
CONTINUOUS = (*OTHERS, "--env", "mpe/simple", "--actions", "continuous")


@pytest.fixture
def command(called):
    """`command(module, *arguments)`: what a command said that went well."""

    def run(module, *arguments):
        code, said = called(module, *arguments)
        assert code in (None, 0), said
        return said

    return run


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_command(algorithm, command, tmp_path, monkeypatch, foreign):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = MAT if algorithm.startswith("mat") else CONTINUOUS if algorithm == "ppo" else OTHERS
    run = tmp_path / algorithm
    command(train, "--algorithm", algorithm, *TINY, *own, "--run-dir", run)
    said = command(train, "--resume", run, "--total-updates", 4)
    assert "greedy return over 4 episodes" in said
    assert [line["update"] for line in read_lines(run / "metrics.jsonl")] == [1, 2, 3, 4]
    assert list((run / "tensorboard").iterdir())
    assert "8 episodes" in command(evaluate, run, "--episodes", 8)
    command(render, run, "--episodes", 1)
    command(export, run)
    figures = tmp_path / "figures"
    command(report, run, "--html", tmp_path / "report.html", "--replays", 1, "--png", figures)
    made = {path.name for path in (*run.iterdir(), *tmp_path.iterdir())}
    assert {"replay.gif", "replay.html", "policy.zip", "report.html", "summary.json"} <= made
    assert list(figures.glob("*.png"))


@pytest.mark.parametrize("world", ["gymnax/Pendulum-v1", "jaxmarl/MPE_simple_spread_v3"])
def test_worlds_of_other_packages(world, foreign):
    import jmarl

    env = jmarl.make(world)
    _, first = jax.jit(partial(env.reset, num_envs=2))(jax.random.key(0))
    assert first.obs.shape == (2, env.spec.num_agents, env.spec.obs_size)
