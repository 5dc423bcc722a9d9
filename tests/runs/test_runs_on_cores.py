"""Runs on several devices of a CPU, as a user starts them: they neither deadlock nor mind being
stopped, and they resume bit for bit."""

import json
import os
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

from tests.support.programs import cached

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only"),
]
XLAS_LIMIT = 41  # seconds: after 40 in which a device waits for another, XLA aborts by default

TINY = (
    "--algorithm ippo --num-envs 4 --rollout-length 2 --ppo.num-minibatches 1 --ppo.epochs 1 "
    "--net.hidden 4 --eval-episodes 4 --no-gif --no-tensorboard --no-compilation-cache"
)


def start(path, *options):
    command = [sys.executable, "-m", "jmarl.train", *TINY.split(), "--run-dir", path]
    command += [str(option) for option in options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def lines(path):
    found = path / "metrics.jsonl"
    return found.read_bytes().splitlines() if found.exists() else []


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


class Halted(NamedTuple):
    process: subprocess.Popen
    path: object
    since: float


@pytest.fixture(scope="module")
def halted(tmp_path_factory):
    """A run on two devices that is stopped while the other tests of this file run."""
    path = tmp_path_factory.mktemp("halted") / "run"
    budget = ("--total-updates", 1000000, "--eval-every", 1000000, "--log-every", 20)
    process = start(path, "--devices", 2, *budget)
    try:
        wait_for(lambda: lines(path))
        process.send_signal(signal.SIGSTOP)
        yield Halted(process, path, time.monotonic())
    finally:
        process.kill()
        process.communicate()


@pytest.mark.usefixtures("halted")
@pytest.mark.parametrize("devices", [2, 4])
def test_a_run_ends_however_seldom_it_logs(devices, tmp_path):
    path = tmp_path / "run"
    seldom = ("--log-every", 500, "--total-updates", 500, "--eval-every", 500)
    run = start(path, "--devices", devices, *seldom)
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 0, errors.decode()
    assert len(lines(path)) == 1
    made_with = json.loads((path / "versions.json").read_text(encoding="utf-8"))
    assert made_with["devices"] == devices


def called(module, *options):
    command = [sys.executable, "-m", module, *options]
    done = subprocess.run(command, capture_output=True, text=True, env=cached(), timeout=300)
    assert done.returncode == 0, done.stderr
    assert "damaged" not in done.stderr


def trained(path, *options):
    given = "--log-every 1 --eval-episodes 8"
    called("jmarl.train", *given.split(), *options)
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_run_on_its_cores_goes_on_bit_for_bit(tmp_path):
    small = "--algorithm ippo --num-envs 16 --net.hidden 8 8 --ppo.num-minibatches 1 --no-gif"
    small = [*small.split(), "--ppo.lr-schedule", "constant", "--no-tensorboard"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    expected = trained(whole, *small, "--total-updates", "4", "--run-dir", str(whole))
    trained(cut, *small, "--total-updates", "2", "--run-dir", str(cut))
    ours = trained(cut, "--resume", str(cut), "--total-updates", "4")
    names = [name for name in expected[-1] if name.startswith(("losses/", "train/"))]
    assert len(names) > 5
    assert [[line[n] for n in names] for line in ours] == [
        [line[n] for n in names] for line in expected
    ]
    # and what it saved can be read where there is one device
    called("jmarl.evaluate", str(whole), "--episodes", "8", "--json", str(tmp_path / "scores.json"))
    on_one = trained(whole, "--resume", str(whole), "--total-updates", "5", "--devices", "1")
    assert on_one[:4] == expected
    # the same streams on two devices
    on_two = trained(cut, "--resume", str(cut), "--total-updates", "5", "--devices", "2")
    assert on_two[4]["update"] == 5
    for name in names:
        assert on_one[4][name] == pytest.approx(on_two[4][name], abs=1e-5)


def test_a_run_goes_on_however_long_it_was_stopped(halted):
    """The last test here, so that the wait is short."""
    time.sleep(max(0.0, halted.since + XLAS_LIMIT - time.monotonic()))
    before = len(lines(halted.path))
    halted.process.send_signal(signal.SIGCONT)
    wait_for(lambda: len(lines(halted.path)) > before + 3)
    halted.process.terminate()
    _, errors = halted.process.communicate(timeout=60)
    assert halted.process.returncode == 128 + signal.SIGTERM, errors.decode()
    assert errors == b""
