"""Signals end a command at once before training, and after the running updates while it trains."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.interruptions import AT_ONCE, SIGNALS, TRAINING, UPDATES, interrupted, phase_of
from jmarl.runs.files import read_lines, written_checkpoints

ROOT = Path(__file__).parents[2]
TRAIN = [
    *(sys.executable, "-m", "jmarl.train", "--algorithm", "ippo", "--num-envs", "4"),
    *("--rollout-length", "5", "--total-updates", "100000", "--log-every", "1"),
    *("--eval-episodes", "4", "--eval-every", "100000", "--net.hidden", "8", "--devices", "1"),
    *("--ppo.num-minibatches", "1", "--ppo.epochs", "1", "--no-tensorboard", "--no-gif"),
    *("--no-compilation-cache", "--run-dir", "x"),
]
ENDLESS = "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"  # minutes in C, as a compilation is


def started(words, cwd, **streams):
    """With SIGINT as in a terminal; what a script starts with `&` ignores it. By `env`, because
    Python would fork to do so, and jax has threads."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(["env", "--default-signal=INT", *words], cwd=cwd, env=env, **streams)


def python(text, cwd):
    """A child that has said "ready"."""
    words = [sys.executable, "-c", text]
    child = started(words, cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_what_is_busy_in_c(number, tmp_path):
    child = python(
        "import hashlib\n"
        "from jmarl.runs.signals import end_on_signals\n"
        f"end_on_signals(); print('ready', flush=True); {ENDLESS}",
        tmp_path,
    )
    child.send_signal(number)
    errors = child.communicate(timeout=60)[1]
    assert child.returncode == 128 + number
    assert errors == f"\ninterrupted by {number.name}.\n"


def test_the_second_signal_ends_training_at_once_and_names_the_last_checkpoint(tmp_path):
    child = python(
        "import hashlib, threading, time\n"
        "from jmarl.runs.signals import Interruption, end_on_signals\n"
        "end_on_signals()\n"
        "interruption = Interruption(lambda: 40)\n"
        "def tell():\n"
        "    while interruption.signal is None: time.sleep(0.01)\n"
        "    print('held', interruption.signal, flush=True)\n"
        "threading.Thread(target=tell, daemon=True).start()\n"
        "with interruption.watched():\n"
        "    interruption.begin()\n"
        f"    print('ready', flush=True); {ENDLESS}",
        tmp_path,
    )
    child.send_signal(signal.SIGHUP)
    assert child.stdout.readline() == f"held {int(signal.SIGHUP)}\n"
    child.send_signal(signal.SIGHUP)  # a terminal that closes may send several
    child.send_signal(signal.SIGINT)
    errors = child.communicate(timeout=60)[1]
    assert child.returncode == 130
    assert errors == "\ninterrupted by SIGINT; the last checkpoint is of update 40.\n"


COMMANDS = ["jmarl.train", "jmarl.evaluate", "jmarl.sweep", "jmarl.render", "jmarl.report"]
COMMANDS += ["jmarl.export", "benchmarks.throughput", "benchmarks.learning"]


@pytest.mark.parametrize("module", COMMANDS)
def test_every_command_ends_from_its_first_line_on(module, tmp_path):
    """While it imports; whatever follows on its command line."""
    number = SIGNALS[COMMANDS.index(module) % 3]
    ended = interrupted(module, ["--nothing"], tmp_path, number)
    assert (ended.code, ended.phase) == (128 + number, "imports"), ended.shown
    assert ended.seconds < AT_ONCE
    assert ended.shown.endswith(f"interrupted by {number.name}.\r\n")
    assert "Traceback" not in ended.shown
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def trains(tmp_path_factory):
    """`trains(number, due)`: a training in a terminal, its directory and how it ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))

        def interrupt(number, due, **more):
            cwd = tmp_path_factory.mktemp("run")
            words = [*TRAINING, "--run-dir", "x"]
            return cwd / "x", interrupted("jmarl.train", words, cwd, number, due, **more)

        yield interrupt


def test_compiling_ends_at_once_and_nothing_is_on_disk(trains):
    path, ended = trains(signal.SIGTERM, lambda shown, _: "compiling" in shown)
    assert (ended.code, ended.phase) == (143, "compiling"), ended.shown
    assert ended.seconds < AT_ONCE
    assert "interrupted by SIGTERM" in ended.shown
    assert "Traceback" not in ended.shown
    assert not (path / "checkpoints").exists()


def test_at_the_end_a_command_ends_once_the_last_checkpoint_is_on_disk(trains):
    """Nothing is lost: a resume completes the rest (`tests/runs/test_history.py`)."""
    path, ended = trains(signal.SIGHUP, lambda shown, _: phase_of(shown) == "closing")
    assert ended.code == 129, ended.shown
    assert ended.seconds < 2 * AT_ONCE  # Orbax may still be at its import
    assert written_checkpoints(path / "checkpoints")[-1] == UPDATES
    assert "interrupted by SIGHUP" in ended.shown
    assert not (path / "summary.json").exists()


def test_when_all_is_done_signals_come_too_late(tmp_path):
    """Python takes its handlers away before it ends: the command would die of the signal."""
    child = python(
        "import atexit, time\n"
        "from jmarl.runs.signals import end_on_signals\n"
        "atexit.register(lambda: (print('ready', flush=True), time.sleep(0.5)))\n"
        "end_on_signals()",
        tmp_path,
    )
    for number in SIGNALS:
        child.send_signal(number)
    assert child.communicate(timeout=60) == ("", "")
    assert child.returncode == 0


def test_while_training_it_ends_after_the_running_updates(tmp_path):
    with started(TRAIN, tmp_path, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not read_lines(tmp_path / "x" / "metrics.jsonl"):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    done = read_lines(tmp_path / "x" / "metrics.jsonl")[-1]["update"]
    assert written_checkpoints(tmp_path / "x" / "checkpoints") == [done]
