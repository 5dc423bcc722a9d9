"""Runs on several devices of a CPU neither deadlock nor mind being stopped."""

import json
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import pytest

from jmarl.in_flight import LIMIT, Bounded

XLAS_LIMIT = 41  # seconds: after 40 in which a device waits for another, XLA aborts by default

TINY = (
    "--algorithm ippo --num-envs 4 --rollout-length 2 --ppo.num-minibatches 1 --ppo.epochs 1 "
    "--net.hidden 4 --eval-episodes 4 --no-gif --no-tensorboard --no-compilation-cache"
)


def start(path, *options):
    command = [sys.executable, "-m", "jmarl.train", *TINY.split(), "--run-dir", path, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def lines(path):
    found = path / "metrics.jsonl"
    return found.read_bytes().splitlines() if found.exists() else []


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_runs_on_several_devices_end_however_seldom_they_log_and_however_long_they_are_stopped(
    tmp_path,
):
    stopped = tmp_path / "stopped"
    budget = ("--total-updates", "1000000", "--log-every", "20")
    halted = start(stopped, "--devices", "2", "--eval-every", "1000000", *budget)
    try:
        wait_for(lambda: lines(stopped))
        halted.send_signal(signal.SIGSTOP)
        since = time.monotonic()

        for devices in (2, 4):  # meanwhile
            path = tmp_path / str(devices)
            seldom = ("--devices", devices, "--log-every", 500, "--total-updates", 500)
            run = start(path, *map(str, seldom), "--eval-every", "500")
            _, errors = run.communicate(timeout=120)
            assert run.returncode == 0, errors.decode()
            assert len(lines(path)) == 1
            made_with = json.loads((path / "versions.json").read_text(encoding="utf-8"))
            assert made_with["devices"] == devices

        time.sleep(max(0.0, since + XLAS_LIMIT - time.monotonic()))
        before = len(lines(stopped))
        halted.send_signal(signal.SIGCONT)
        wait_for(lambda: len(lines(stopped)) > before + 3)
        halted.terminate()
        _, errors = halted.communicate(timeout=60)
        assert halted.returncode == 128 + signal.SIGTERM, errors.decode()
        assert errors == b""
    finally:
        halted.kill()
        halted.communicate()


def test_a_few_updates_are_queued_and_no_more():
    """Only the oldest is waited for, when there are more than so many."""
    waited = []

    class Metric(float):
        def block_until_ready(self):
            waited.append(float(self))
            return self

    step = Bounded(lambda state, _: (state + 1, {"loss": Metric(state)}))
    state = 0
    for _ in range(LIMIT + 3):
        state, metrics = step(state, None)
    assert state == LIMIT + 3
    assert metrics == {"loss": LIMIT + 2}
    assert waited == [0, 1, 2]


def test_a_bounded_step_computes_what_the_step_does():
    step = jax.jit(lambda state, by: (state + by, {"sum": state.sum()}))
    state = jnp.zeros(3)
    bounded, one = Bounded(step), jnp.ones(())
    for _ in range(2 * LIMIT):
        state, metrics = bounded(state, one)
    assert state.tolist() == [2 * LIMIT] * 3
    assert metrics["sum"] == 3 * (2 * LIMIT - 1)
