"""What a run costs besides training: checkpoints, evaluations and logs at their default cadence.

The default run's updates between two evaluations are timed bare, and with each of the three in
turn; the shares are medians over rounds. A checkpoint is begun before the updates, so that what
it writes in the background disturbs them as it does in a run.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.report import Row, arguments, console, table, write
from jmarl.algorithms import make_trainer
from jmarl.checkpoint import Checkpoints
from jmarl.config import Config, build
from jmarl.evaluation import described
from jmarl.logs import Log
from jmarl.programs import compile_programs

LIMITS = {"checkpoints": 0.02, "evaluations": 0.10, "logs": 0.01}
ROUNDS, QUICK_ROUNDS = 7, 2


class Work:
    """The default run between two evaluations, with one kind of effect."""

    def __init__(self, config: Config, directory: Path) -> None:
        self.config = config
        self.trainer, self.hyper = make_trainer(config)
        self.programs = compile_programs(self.trainer, self.hyper, config.eval_episodes)
        self.state: Any = self.programs.init(jax.random.key(0))
        self.checkpoints = Checkpoints(directory / "checkpoints", config.keep_checkpoints)
        self.log, self.saves = Log(directory, config, -1), 0

    def timed(self, effect: str) -> float:
        jax.block_until_ready(self.state)
        self.checkpoints.wait()
        started = time.perf_counter()
        if effect == "checkpoints":
            self.saves += 1
            self.checkpoints.save(self.saves, self.state, 0.0, {})
        self._train(logging=effect == "logs")
        if effect == "evaluations":
            self._evaluate()
        return time.perf_counter() - started

    def _train(self, logging: bool) -> None:
        chunk = []
        for done in range(1, self.config.updates_between_evaluations + 1):
            self.state, metrics = self.programs.step(self.state, self.hyper)
            chunk.append(metrics)
            if done % self.config.log_every == 0:
                told = jax.device_get(chunk)
                if logging:
                    means = {
                        name: float(sum(m[name] for m in told) / len(told)) for name in told[0]
                    }
                    self.log.metrics({"update": done, "steps": done, **means})
                chunk = []
        jax.block_until_ready(self.state)

    def _evaluate(self) -> None:
        for greedy in (True, False):
            state, key = self.state, jax.random.key(1)
            seen = self.programs.score(state.params, state.normalisers, key, jnp.asarray(greedy))
            described(self.trainer.env.spec, seen, "eval")


def main() -> None:
    options = arguments(__doc__, "overhead")
    with tempfile.TemporaryDirectory() as directory:
        work = Work(build({}), Path(directory))
        times: dict[str, list[float]] = {"bare": [], **{effect: [] for effect in LIMITS}}
        for turn in range((QUICK_ROUNDS if options.quick else ROUNDS) + 1):
            for effect, taken in times.items():
                seconds = work.timed(effect)
                if turn:  # the first round warms up
                    taken.append(seconds)
            console.print(f"round {turn} …")
        work.checkpoints.close()
        work.log.close()
    bare, rows, lines = times.pop("bare"), [], []
    for effect, taken in times.items():
        share = statistics.median(t / b - 1 for t, b in zip(taken, bare, strict=True))
        rows.append(Row("default", effect, "share_of_training", share))
        lines.append([effect, f"{share:.1%}", f"{LIMITS[effect]:.0%}"])
    title = f"share of {statistics.median(bare):.1f} s of training"
    table(title, ["", "measured", "wanted below"], lines)
    write(options.json, rows)


if __name__ == "__main__":
    main()
