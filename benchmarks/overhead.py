"""Overhead of a run besides training: checkpoints, evaluations and logs at their default intervals.

Times the updates of the default run between two evaluations, then each of the three effects as
often as it occurs in them; shares are ratios of medians. Differences of whole runs would be lost in
noise of several per cent. A checkpoint blocks training only until the state is copied; the time of
writing afterwards is reported too, as if it did not overlap with training.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.report import Row, arguments, console, table, write
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import Config, build
from jmarl.execution.compilation import compile_programs
from jmarl.learning.episodes import episode_figures
from jmarl.runs.checkpoint import Checkpoints
from jmarl.runs.logs import Log

LIMITS = {"checkpoints": 0.02, "evaluations": 0.10, "logs": 0.01}
ROUNDS, QUICK_ROUNDS = (5, 15), (1, 5)  # windows of training, repetitions of each effect


class Work:
    """The default run between two evaluations, and each effect separately."""

    def __init__(self, config: Config, directory: Path) -> None:
        self.config = config
        self.trainer, self.hyper = make_trainer(config)
        self.programs = compile_programs(self.trainer, self.hyper, config.eval_episodes)
        self.state: Any = self.programs.init(jax.random.key(0))
        self.checkpoints = Checkpoints(directory / "checkpoints", config.keep_checkpoints)
        self.log, self.saves, self.entry = Log(directory, config, -1), 0, {}

    def train(self) -> None:
        updates = []
        for _ in range(self.config.updates_between_evaluations):
            self.state, metrics = self.programs.step(self.state, self.hyper)
            updates.append(metrics)
        jax.block_until_ready(self.state)
        self.entry = {name: float(value) for name, value in updates[-1].items()}

    def begin_checkpoint(self) -> None:
        self.saves += 1
        self.checkpoints.save(self.saves, self.state, 0.0, {})

    def checkpoint(self) -> None:
        self.begin_checkpoint()
        self.checkpoints.wait()

    def evaluate(self) -> None:
        for greedy in (True, False):
            state, key = self.state, jax.random.key(1)
            seen = self.programs.score(state.policies, key, jnp.asarray(greedy))
            episode_figures(self.trainer.env.spec, seen, "eval")

    def write_lines(self) -> None:
        for i in range(self.config.updates_between_evaluations // self.config.log_every + 1):
            self.log.metrics({"update": i, "steps": i, **self.entry})


def median_seconds(work: Callable[[], None], between: Callable[[], None], rounds: int) -> float:
    taken = []
    for turn in range(rounds + 1):
        started = time.perf_counter()
        work()
        if turn:  # the first round warms up
            taken.append(time.perf_counter() - started)
        between()
    return statistics.median(taken)


def main() -> None:
    options = arguments(__doc__, "overhead")
    windows, rounds = QUICK_ROUNDS if options.quick else ROUNDS
    with tempfile.TemporaryDirectory() as directory:
        work = Work(build({}), Path(directory))
        console.print("training …")
        training = median_seconds(work.train, lambda: None, windows)
        finished = work.checkpoints.wait
        spent = {
            "checkpoints": median_seconds(work.begin_checkpoint, finished, rounds),
            "checkpoints with writing": median_seconds(work.checkpoint, finished, rounds),
            "evaluations": median_seconds(work.evaluate, finished, rounds),
            "logs": median_seconds(work.write_lines, finished, rounds),
        }
        work.checkpoints.close()
        work.log.close()
    rows, lines = [], []
    for effect, seconds in spent.items():
        share = seconds / training
        rows.append(Row("default", effect, "share_of_training", share))
        limit = f"{LIMITS[effect]:.0%}" if effect in LIMITS else ""
        lines.append([effect, f"{seconds * 1e3:.1f}", f"{share:.2%}", limit])
    title = f"between two evaluations: {training:.1f} s of training"
    table(title, ["", "ms", "share", "wanted below"], lines)
    write(options.json, rows)


if __name__ == "__main__":
    main()
