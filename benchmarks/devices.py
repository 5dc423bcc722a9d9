"""One run and one population on 1, 2, 4 and 8 devices, with the same total size on each number.

The devices are virtual CPU devices: the benchmark shows that a program on several devices does the
same work with little communication, not that it is faster. On two cores more than two devices gain
nothing, and two may not either, because a single device already uses both cores. `data`: the worlds
of one run are sharded, with one all-reduce of gradients per minibatch. `member`: whole runs are
sharded, which do not communicate until their metrics are read.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.collectives import Collective, collectives
from benchmarks.report import Row, arguments, console, interleaved, table, write
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.execution.compilation import jitted_init, jitted_step
from jmarl.execution.sharding import DATA_AXIS, make_mesh, places
from jmarl.learning.collectives import Layout

DEVICES = (1, 2, 4, 8)
MEMBERS = 8
WORLDS, QUICK_WORLDS = 1024, 128  # of all members together
ROUNDS, QUICK_ROUNDS = 7, 3
CHOSEN = {"algorithm": "mappo", "rollout_length": 25, "ppo": {"epochs": 5, "num_minibatches": 4}}


class Run:
    """A program on a mesh and its state, which every call advances."""

    def __init__(self, members: int, worlds: int) -> None:
        trainer, hyper = make_trainer(build(CHOSEN | {"num_envs": worlds // members}))
        mesh, batched = make_mesh(jax.devices(), members), members > 1
        trainer = replace(trainer, layout=Layout(mesh.shape[DATA_AXIS]))
        hyper = jax.tree.map(jnp.asarray, hyper)
        keys = jax.random.key(0)
        if batched:
            keys = jax.random.split(keys, members)
            hyper = jax.tree.map(lambda x: jnp.full(members, x), hyper)
        at = places(trainer, hyper, mesh, batched)
        self.hyper = jax.device_put(hyper, at.hyper)
        self.state = jitted_init(trainer, members, at)(keys)
        step = jitted_step(trainer, members, at)
        started = time.perf_counter()
        self.program = step.lower(self.state, self.hyper).compile()
        self.compile_s = time.perf_counter() - started

    def __call__(self) -> Any:
        self.state, metrics = self.program(self.state, self.hyper)
        return self.state, metrics

    @property
    def collectives(self) -> list[Collective]:
        return collectives(self.program.as_text())


def measure(quick: bool) -> list[Row]:
    """Measure on all devices of this process."""
    worlds, rounds = (QUICK_WORLDS, QUICK_ROUNDS) if quick else (WORLDS, ROUNDS)
    runs = {"data": Run(1, worlds), "member": Run(MEMBERS, worlds)}
    taken = interleaved(dict(runs), rounds)
    case, steps = f"devices/{jax.device_count()}", worlds * CHOSEN["rollout_length"]
    return [
        Row(case, subject, metric, value)
        for subject, run in runs.items()
        for metric, value in {
            "steps_per_s": steps / min(taken[subject]),
            "compile_s": run.compile_s,
            "collectives": sum(one.times for one in run.collectives),
            "collective_bytes": sum(one.times * one.size for one in run.collectives),
        }.items()
    ]


def measure_in_process(count: int, quick: bool) -> list[Row]:
    """Measure in a new process with `count` devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.json"
        command = [sys.executable, "-m", "benchmarks.devices", "--here", "--json", str(path)]
        subprocess.run(
            command + ["--quick"] * quick,
            env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def lines(rows: list[Row]) -> list[list[str]]:
    value = {(row.case, row.subject, row.metric): row.value for row in rows}
    return [
        [
            case,
            subject,
            f"{value[case, subject, 'steps_per_s']:,.0f}",
            f"{value[case, subject, 'compile_s']:.1f}",
            f"{value[case, subject, 'collectives']:,.0f}",
            f"{value[case, subject, 'collective_bytes'] / 1024:,.0f}",
        ]
        for case, subject in dict.fromkeys((row.case, row.subject) for row in rows)
    ]


def _more_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--here", action="store_true", help="measure on the devices of this process only"
    )


def main() -> None:
    options = arguments(__doc__, "devices", _more_options)
    rows: list[Row] = []
    if options.here:
        rows = measure(options.quick)
    else:
        for count in DEVICES:
            console.print(f"[dim]{count} devices …[/dim]")
            rows += measure_in_process(count, options.quick)
    columns = ["devices", "sharded", "steps/s", "compiles (s)", "collectives", "KiB"]
    table("speed and collectives of an update", columns, lines(rows))
    write(options.json, rows)


if __name__ == "__main__":
    main()
