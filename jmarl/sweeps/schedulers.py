"""Selection among members in training: successive halving, and population-based training."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jmarl.execution import multihost
from jmarl.execution.population import Population
from jmarl.runs.files import truncate_after
from jmarl.sweeps.selection import exploit_and_explore, survivors


@dataclass(frozen=True)
class Halving:
    """At every rung only the best settings train on, with all their seeds."""

    rungs: tuple[int, ...]  # updates
    factor: int
    settings: tuple[int, ...]  # of each member

    def next(self, done: int) -> int | None:
        return next((rung for rung in self.rungs if rung > done), None)

    def apply(self, population: Population, scores: np.ndarray, update: int) -> list[int]:
        del update
        settings = np.array(self.settings)[population.active]
        population.keep(population.active[survivors(scores, settings, self.factor)])
        return []


@dataclass(frozen=True)
class Pbt:
    """The worst members copy parameters and optimiser of the best ones, and change their
    hyperparameters a little."""

    every: int  # updates
    names: Mapping[str, str]  # of hyperparameters that change, and of their options in full
    seed: int
    fraction: float
    factor: float
    lines: Path  # a line for every copy

    def next(self, done: int) -> int | None:
        return done - done % self.every + self.every

    def apply(self, population: Population, scores: np.ndarray, update: int) -> list[int]:
        before = {
            name: values[population.active] for name, values in population.hyper._asdict().items()
        }
        source, after = exploit_and_explore(
            scores, before, self.names, self.seed, update, self.fraction, self.factor
        )
        population.copy(source)
        population.hyper = population.hyper._replace(**after)
        places = np.flatnonzero(source != np.arange(len(source)))
        if multihost.is_main_process():
            self._log(population, source, places, update)
        return [int(population.active[place]) for place in places]

    def _log(
        self, population: Population, source: np.ndarray, places: np.ndarray, update: int
    ) -> None:
        truncate_after(self.lines, update - 1)  # a resumed sweep decides it again
        with self.lines.open("a", encoding="utf-8") as file:
            for place in places:
                line = {
                    "update": update,
                    "member": int(population.active[place]),
                    "copies": int(population.active[source[place]]),
                    "hyper": {n: float(getattr(population.hyper, n)[place]) for n in self.names},
                }
                file.write(json.dumps(line) + "\n")
