"""What training from Python gives: policies, figures, and the directory of the run."""

import shutil
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import jax

from jmarl.config.train_config import Config
from jmarl.errors import ConfigError
from jmarl.evaluation.trained_policy import TrainedPolicy
from jmarl.execution.members import Policies
from jmarl.execution.population import Population
from jmarl.literals import Which
from jmarl.runs.columns import Columns, columns
from jmarl.runs.files import EVALUATIONS, METRICS, iterate_lines, seed_name
from jmarl.runs.in_memory import MemoryRecorder, write_run
from jmarl.runs.loop import LoopResult
from jmarl.types import TrainState


class Outcome:
    """A finished run, in memory or in a directory."""

    def __init__(
        self,
        config: Config,
        result: LoopResult,
        population: Population,
        place: MemoryRecorder | Path,
    ) -> None:
        """`place`: where its lines and states are."""
        self.config = config
        self.state: TrainState = result.state  # of several seeds: [seeds, …]
        self.update = result.update  # updates done
        self.seconds = result.seconds  # of training
        self.stopped_by = result.stopped_by  # the signal that cut it short
        self.failed = result.failed  # seed, by its place → the metric that was not finite
        self.path = place if isinstance(place, Path) else None  # of the run's directory
        self._result, self._place = result, place
        self._seeds, self._hyper = population.seeds, population.hyper
        self._trainer, self._best = population.trainer, population.best
        self._warm_start = population.warm_start

    @property
    def policy(self) -> TrainedPolicy:
        """The best policy by greedy return; of several seeds choose one of `policies`."""
        return self.trained("best")

    @cached_property
    def policies(self) -> tuple[TrainedPolicy, ...]:
        """The best policy of every seed."""
        return tuple(self._policy(member, "best") for member in range(len(self._seeds)))

    @cached_property
    def metrics(self) -> Columns:
        """Means over `log_every` updates; of several seeds the rows of one after the other's."""
        return columns(self._lines("metrics"))

    @cached_property
    def evaluations(self) -> Columns:
        """Figures of the evaluations; the last row (of each seed) scores the best parameters."""
        return columns(self._lines("evaluation"))

    def trained(self, which: Which) -> TrainedPolicy:
        """The best or the latest policy."""
        if len(self._seeds) > 1:
            raise ConfigError(
                f"this outcome has {len(self._seeds)} seeds; choose one of its policies, such as "
                "outcome.policies[0]."
            )
        return self._policy(0, which)

    def save(self, path: str | Path) -> Path:
        """Write the run to a new directory, which every command accepts."""
        path = Path(path)
        if isinstance(self._place, MemoryRecorder):
            given = (self.config, self._place, self._result, self._seeds, self._hyper)
            warm_start = self._warm_start
            write_run(*given, path, None if warm_start is None else warm_start.about)
        elif path.exists():
            raise ConfigError(f"{str(path)!r} exists; choose another name.")
        else:
            shutil.copytree(self._place, path)
        return path

    def _policy(self, member: int, which: Which) -> TrainedPolicy:
        alone = {"seeds": 1, "seed": self._seeds[member], "run_dir": None, "resume": None}
        config, trainer = self.config.model_copy(update=alone), self._trainer
        return TrainedPolicy(config, trainer.env, trainer.players, self._parameters(member, which))

    def _parameters(self, member: int, which: Which) -> Policies:
        if which == "best" and self._best is not None:
            return self._best.of(member)
        several = len(self._seeds) > 1
        return jax.tree.map(lambda x: x[member] if several else x, self.state.policies)

    def _lines(self, kind: Literal["metrics", "evaluation"]) -> Iterator[dict[str, Any]]:
        if isinstance(self._place, MemoryRecorder):
            yield from sorted(self._place.entries(kind), key=lambda entry: entry.get("member", 0))
            return
        name = METRICS if kind == "metrics" else EVALUATIONS
        several = len(self._seeds) > 1
        for seed in self._seeds:
            place = self._place / seed_name(seed) if several else self._place
            yield from iterate_lines(place / name)

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(str(self.path))
        config = self.config
        return f"Outcome({config.algorithm} on {config.env}, {self.update} updates, {where})"
