"""Runs that are killed: kill -9 at any moment loses no finished checkpoint and changes nothing."""

import multiprocessing
import os
import random
import signal
import time

import pytest

from jmarl.runs.files import read_lines
from tests.support.tiny_runs import configured, go, resumed, same_runs

KILLS = 8  # `python -m benchmarks.faults` does more, of every kind of training
UPDATES = 30


def often_saving(path):
    return configured(
        path, total_updates=UPDATES, eval_every=UPDATES, checkpoint_every=1, keep_checkpoints=2
    )


def child(path):
    """Begins or goes on, until it is done or killed."""
    if (path / "config.yaml").exists():
        resumed(path)
    else:
        go(often_saving(path))


def progress(path):
    return len(read_lines(path / "metrics.jsonl"))


@pytest.mark.long
def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path, monkeypatch):
    """kill -9, again and again: nothing finished is lost, and the end is bit for bit the same."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["jmarl.runs.single", "jmarl.runs.checkpoint"])
    chance, path, kills = random.Random(0), tmp_path / "killed", 0
    while True:
        before = progress(path)
        process = context.Process(target=child, args=(path,))
        process.start()
        # a moment after the first new update: saving and training take turns in milliseconds
        while process.is_alive() and progress(path) <= before:
            time.sleep(0.005)
        if kills < KILLS:
            time.sleep(chance.random() * 0.1)
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                kills += 1
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        finished = list((path / "checkpoints").glob("update_*[0-9]"))
        assert finished or progress(path) <= 2
    assert kills >= KILLS // 2
    assert len(list((path / "checkpoints").iterdir())) <= 3  # the latest two and the best
    go(often_saving(tmp_path / "whole"))
    same_runs(path, tmp_path / "whole", UPDATES)
