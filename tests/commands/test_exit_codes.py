"""One table of exit codes for all commands: 0 done, 1 failed, 2 refused. Those of signals are in
`test_signals`."""

import shutil

import pytest

from jmarl.commands import evaluate, export, import_torch, render, report, sweep, train
from tests.support.tiny_runs import configured, go

TINY = ["num_envs=4", "rollout_length=5", "total_updates=2", "eval_episodes=4", "net.hidden=[8]"]
TINY += ["algorithm=ippo", "ppo.epochs=1", "ppo.num_minibatches=1", "ppo.lr=1e30", "gif=False"]
DIVERGES = ["--num-envs=4", "--rollout-length=5", "--total-updates=4", "--log-every=1", "--quiet"]
DIVERGES += ["--algorithm=ippo", "--net.hidden", "8", "--ppo.epochs=1", "--ppo.num-minibatches=1"]
DIVERGES += ["--ppo.lr=1e30", "--eval-episodes=4", "--no-compilation-cache", "--devices=1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "x"
    go(configured(path, total_updates=2, env="mpe/simple"))
    return path


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        (train, ["--ppo.lr", "inf"], "ppo.lr=inf"),
        (train, ["--ppo.lr", "fast"], "--ppo.lr 'fast' is not a number;"),
        (train, ["--seed", "9" * 5000], "--seed has 5000 digits, which is too many;"),
        (train, ["--resume", "nothing"], "resume='nothing' is not a run"),
        (train, ["--run-dir", "a/" + "x" * 300], "a name in it has 300 bytes"),
        (train, ["--wandb", "--run-dir", "a/b"], "needs the 'wandb' extra"),
        (train, ["--num-envs", "1000000000"], "800 GB of memory"),
        (sweep, ["--samples", "0"], "samples=0"),
        (sweep, ["--resume", "x" * 300], "File name too long"),
        (evaluate, ["nothing"], "'nothing' is not a run"),
        (evaluate, ["RUN", "--seed", "4294967296"], "seed=4294967296"),
        (evaluate, ["RUN", "--episodes", "1000000000000"], "episodes=1000000000000 would take"),
        (render, ["nothing"], "'nothing' is not a run"),
        (render, ["RUN", "--episodes", "1000000000000"], "episodes=1000000000000 would take"),
        (report, ["nothing"], "there is no directory 'nothing'"),
        (report, ["x" * 300], "File name too long"),
        (export, ["nothing"], "'nothing' is not a run"),
        (export, ["RUN", "--which", "worst"], "worst"),
        (export, ["RUN", "--reference", "mat"], "choose format='torch'"),
        (export, ["RUN", "--format", "torch", "--reference", "mat"], "choose mat or one of its"),
        (import_torch, ["nothing.pt"], "'nothing.pt' does not exist"),
        (import_torch, ["--algorithm", "mat"], "which checkpoint?"),
        (import_torch, ["x.pt", "--seeds", "2"], "one checkpoint is one run"),
        (train, ["--init-from", "RUN", "--algorithm", "mappo"], "does not fit this run"),
        (train, ["--init-parts", "actor"], "init_parts='actor' needs init_from"),
    ],
)
def test_what_is_refused_ends_with_2_and_leaves_nothing(
    command, words, said, called, run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = sorted(run.rglob("*"))
    code, told = called(command, *(run if word == "RUN" else word for word in words))
    assert (code, told.count("\n")) == (2, 1), told
    assert said in told
    assert sorted(run.rglob("*")) == before
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        (evaluate, ["RUN", "--json", "a/b.json"], "json_path='a/b.json' cannot be written"),
        (evaluate, ["RUN", "--json", "x" * 300], "name is too long"),
        (render, ["RUN", "--gif", "a/b.gif"], "gif='a/b.gif' cannot be written"),
        (render, ["RUN", "--html", "."], "html='.' cannot be written: it is a directory"),
        (report, ["RUN", "--html", "a/b.html"], "html='a/b.html' cannot be written"),
        (export, ["RUN", "--out", "a/b.zip"], "out='a/b.zip' cannot be written"),
    ],
)
def test_a_file_that_cannot_be_written_ends_with_1_before_any_work(
    command, words, said, called, run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, told = called(command, *(run if word == "RUN" else word for word in words))
    assert (code, told.count("\n")) == (1, 1), told
    assert said in told
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (train, [*DIVERGES, "--run-dir", "x"]),
        (sweep, ["--base", *TINY, "--seeds", "2", "--sweep-dir", "x", "--quiet"]),
        (evaluate, ["RUN", "--episodes", "4", "--json", "/dev/full"]),
        (render, ["RUN", "--episodes", "1", "--gif", "/dev/full", "--no-html"]),
        (report, ["RUN", "--no-replays", "--html", "/dev/full"]),
        (export, ["RUN", "--out", "/dev/full"]),
    ],
)
def test_what_fails_ends_with_1_and_one_sentence(
    command, words, called, run, tmp_path, monkeypatch, unwatched
):
    """A NaN, or a full disk."""
    monkeypatch.chdir(tmp_path)
    code, told = called(command, *(run if word == "RUN" else word for word in words))
    assert code == 1, told
    *_, last = told.splitlines()
    assert "is nan" in last or "No space left on device" in last
    assert "Traceback" not in told


def test_what_is_done_ends_with_0(called, run, tmp_path):
    """And what is no file is written into, not replaced by one."""
    code, told = called(evaluate, run, "--episodes", "4", "--json", "/dev/null")
    assert (code, "figures: /dev/null" in told) == (0, True)
    copy = tmp_path / "x"
    shutil.copytree(run, copy)
    for command in (render, export, report):
        assert called(command, copy)[0] == 0
    assert {"replay.gif", "replay.html", "policy.zip", "report.html"} <= {
        path.name for path in copy.iterdir()
    }
