"""Many members as one vmapped program, as a loop, and as separate processes.

Every figure covers a whole command as a user types it: start, compilation, training, evaluations,
checkpoints. `vmapped`: `jmarl.sweep` with all members in one batch; `sequential`: one member after
the other in one process; `chosen`: the default of `jmarl.sweep`; `processes`: one `jmarl.train`
after the other. Each subject starts with its own empty cache of compiled programs, which its later
processes find filled. Processes are run for up to 16 members; the time for 64 is four times that
for 16 (`estimated`).
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import Row, arguments, console, table, write
from jmarl.runs.files import read_lines

MEMBERS = (1, 4, 16, 64)
MOST_PROCESSES = 16
STEPS = 100_000
RUN = {
    "algorithm": "mappo",
    "env": "mpe/simple_spread",
    "num_envs": "16",
    "total_steps": str(STEPS),
    "eval_every": "125",
    "tensorboard": "False",
    "gif": "False",
}


class Measured(NamedTuple):
    seconds: float  # of the whole command
    steps_per_s: float  # of all members together, while training
    memory_mb: float  # peak of any process


def rates(count: int) -> list[float]:
    """Learning rates, so that members differ not only in their seeds."""
    return [round(3e-4 * 1.1**i, 7) for i in range(count)]


def sweep(members: int, per_batch: int | None) -> Measured:
    base = [f"{name}={value}" for name, value in RUN.items()]
    grid = ",".join(map(str, rates(members)))
    line = ["jmarl.sweep", "--base", *base, "--grid", f"lr={grid}", "--no-plots", "--quiet"]
    line += ["--seeds", "1", "--sweep-dir", "sweep"]
    if per_batch is not None:
        line += ["--members-per-batch", str(per_batch)]
    with tempfile.TemporaryDirectory() as where:
        seconds, memory = timed([line], Path(where))
        metrics = read_lines(Path(where) / "sweep" / "group_0" / "metrics.jsonl")
    return Measured(seconds, metrics[-1]["charts/SPS"], memory)


def processes(members: int) -> Measured:
    options = [x for name, value in RUN.items() for x in _option(name, value)]
    lines = [
        ["jmarl.train", *options, "--ppo.lr", str(lr), "--run-dir", f"run_{i}", "--quiet"]
        for i, lr in enumerate(rates(members))
    ]
    with tempfile.TemporaryDirectory() as where:
        seconds, memory = timed(lines, Path(where))
        metrics = [read_lines(Path(where) / f"run_{i}" / "metrics.jsonl") for i in range(members)]
    trained = sum(lines[-1]["seconds"] for lines in metrics)
    return Measured(seconds, members * metrics[0][-1]["steps"] / trained, memory)


def _option(name: str, value: str) -> list[str]:
    typed = name.replace("_", "-")
    return [f"--no-{typed}"] if value == "False" else [f"--{typed}", value]


def timed(lines: list[list[str]], where: Path) -> tuple[float, float]:
    """Run commands one after the other; returns seconds and the peak memory of any of them in
    MB."""
    root = Path(__file__).parent.parent
    env = os.environ | {"XDG_CACHE_HOME": str(where / "cache"), "PYTHONPATH": str(root)}
    most, start = 0.0, time.perf_counter()
    for line in lines:
        command = [sys.executable, "-m", *line]
        child = subprocess.Popen(command, cwd=where, env=env, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"{' '.join(command)} failed")
        most = max(most, _megabytes(used))
    return time.perf_counter() - start, most


def _megabytes(used: resource.struct_rusage) -> float:
    return used.ru_maxrss / 1024  # Linux reports kilobytes


def measure(members: int) -> dict[str, Measured]:
    found = {}
    for subject in ("vmapped", "sequential", "chosen", "processes"):
        if subject == "processes" and members > MOST_PROCESSES:
            continue
        if subject == "processes":
            found[subject] = processes(members)
        else:
            per_batch = {"vmapped": members, "sequential": 1, "chosen": None}[subject]
            found[subject] = sweep(members, per_batch)
        one = found[subject]
        console.print(
            f"members/{members} {subject}: {one.seconds:.0f} s, {one.steps_per_s:,.0f} steps/s, "
            f"{one.memory_mb:.0f} MB"
        )
    return found


def main() -> None:
    options = arguments(__doc__, "population")
    figures = {members: measure(members) for members in ((1, 4) if options.quick else MEMBERS)}
    most = figures.get(MOST_PROCESSES)
    estimated = []
    if most and max(figures) > MOST_PROCESSES:
        scale = max(figures) / MOST_PROCESSES
        base = most["processes"]
        figures[max(figures)]["processes"] = base._replace(seconds=base.seconds * scale)
        estimated.append(f"members/{max(figures)}/processes")
    rows, lines = [], []
    for members, found in figures.items():
        case = f"members/{members}"
        for subject, one in found.items():
            rows += [
                Row(case, subject, "members_per_minute", 60 * members / one.seconds),
                Row(case, subject, "seconds", one.seconds),
                Row(case, subject, "steps_per_s", one.steps_per_s),
                Row(case, subject, "memory_mb", one.memory_mb),
            ]
        ratio = found["processes"].seconds / found["chosen"].seconds
        rows.append(Row(case, "chosen", "times_sooner_than_processes", ratio))
        cells = [f"{one.seconds:.0f} s, {one.steps_per_s:,.0f}/s" for one in found.values()]
        memory = max(one.memory_mb for one in found.values())
        lines.append([str(members), *cells, f"{ratio:.1f}×", f"{memory:.0f} MB"])
    columns = ["members", *next(iter(figures.values())), "chosen / processes", "most memory"]
    table(f"{STEPS:,} steps of MAPPO on spread each, whole commands", columns, lines)
    write(options.json, rows, estimated=estimated, run=RUN)


if __name__ == "__main__":
    main()
