"""Training for a long time on two devices, with its memory, threads and open files watched."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.faults.commands import Process
from benchmarks.report import Row, console, table
from jmarl.runs.files import METRICS

SETTLED = 2.0  # minutes until all is compiled and allocated once
EVERY = 5.0  # seconds between two looks
LEAK = 1.0  # MB per minute
WORDS = [
    *("--algorithm", "mappo", "--num-envs", "32", "--net.hidden", "32", "--log-every", "5"),
    *("--eval-every", "100", "--checkpoint-every", "100", "--total-updates", "100000000"),
    *("--devices", "2", "--no-gif", "--quiet", "--run-dir", "x"),
]


class Look(NamedTuple):
    """At one moment."""

    minutes: float
    memory: float  # resident, in MB
    threads: int
    files: int


def soak(minutes: float, place: Path, stopped: Callable[[], Any]) -> list[Row]:
    """Two busy processes beside it make its threads wait for a core now and then."""
    process, busy = Process("train", WORDS, place), [_busy() for _ in range(2)]
    looks: list[Look] = []
    until = process.began + minutes * 60
    while process.alive() and time.monotonic() < until and stopped() is None:
        time.sleep(EVERY)
        looks.append(look(process.pid, process.began))
        now = looks[-1]
        if len(looks) % 12 == 0:
            console.print(
                f"{now.minutes:.0f} min: {now.memory:.0f} MB, {now.threads} threads, "
                f"{now.files} open files"
            )
    for each in busy:
        each.kill()
        each.wait()
    os.kill(process.pid, signal.SIGTERM)
    done = process.wait()
    if done.code != 128 + signal.SIGTERM:
        raise SystemExit(f"training ended with exit code {done.code}: {done.err}")
    return judged(looks, (place / "x" / METRICS).read_bytes().count(b"\n"))


def _busy() -> "subprocess.Popen[bytes]":
    """A process that counts."""
    return subprocess.Popen(["nice", sys.executable, "-c", "while True: pass"])


def look(pid: int, began: float) -> Look:
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    status = dict(line.split(":", 1) for line in text.splitlines())
    return Look(
        minutes=(time.monotonic() - began) / 60,
        memory=int(status["VmRSS"].split()[0]) / 1024,
        threads=int(status["Threads"]),
        files=len(os.listdir(f"/proc/{pid}/fd")),
    )


def judged(looks: list[Look], lines: int) -> list[Row]:
    """Growth per minute, after the first minutes: the slope of a straight line."""
    settled = [one for one in looks if one.minutes > SETTLED] or looks
    minutes = np.array([one.minutes for one in settled])
    rows, shown = [], []
    for name in ("memory", "threads", "files"):
        values = np.array([float(getattr(one, name)) for one in settled])
        slope = float(np.polyfit(minutes, values, 1)[0]) if len(values) > 1 else 0.0
        figures = {"first": values[0], "last": values[-1], "most": values.max(), "slope": slope}
        rows += [Row("soak", name, metric, float(value)) for metric, value in figures.items()]
        shown.append([name, *(f"{value:.2f}" for value in figures.values())])
    rows.append(Row("soak", "lines", "last", float(lines)))
    title = f"soak of {looks[-1].minutes:.1f} minutes, {lines:,} lines; after {SETTLED:g} minutes"
    table(title, ["", "first", "last", "most", "per minute"], shown)
    slope = next(row.value for row in rows if (row.subject, row.metric) == ("memory", "slope"))
    console.print(f"memory: {'a leak' if slope > LEAK else 'no leak'} ({slope:+.2f} MB per minute)")
    return rows
