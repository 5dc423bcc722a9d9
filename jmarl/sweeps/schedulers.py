"""Selection among members in training: successive halving, and population-based training."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jmarl.execution import multihost
from jmarl.execution.population import Crew
from jmarl.runs.directory import keep_lines_until
from jmarl.sweeps.selection import exchange, survivors


@dataclass(frozen=True)
class Halving:
    """At every rung only the best go on; they move up into the losers' places."""

    rungs: tuple[int, ...]  # updates
    factor: int

    def next(self, done: int) -> int | None:
        return next((rung for rung in self.rungs if rung > done), None)

    def apply(self, crew: Crew, scores: np.ndarray, update: int) -> None:
        del update
        crew.keep(crew.alive[survivors(scores, self.factor)])


@dataclass(frozen=True)
class Pbt:
    """The worst take over what the best have learned, optimiser included, and change its
    hyperparameters a little."""

    every: int  # updates
    names: tuple[str, ...]  # of hyperparameters that change
    seed: int
    fraction: float
    factor: float
    lines: Path  # where it is written who became whose copy

    def next(self, done: int) -> int | None:
        return done - done % self.every + self.every

    def apply(self, crew: Crew, scores: np.ndarray, update: int) -> None:
        before = {name: getattr(crew.hyper, name)[crew.alive] for name in vars(crew.hyper)}
        source, after = exchange(
            scores, before, self.names, self.seed, update, self.fraction, self.factor
        )
        crew.copy(source)
        crew.hyper = crew.hyper.replace(**after)
        if not multihost.first():
            return
        keep_lines_until(self.lines, update - 1)  # a resumed sweep may decide it again
        with self.lines.open("a", encoding="utf-8") as file:
            for place in np.flatnonzero(source != np.arange(len(source))):
                line = {
                    "update": update,
                    "member": int(crew.alive[place]),
                    "copies": int(crew.alive[source[place]]),
                    "hyper": {n: float(getattr(crew.hyper, n)[place]) for n in self.names},
                }
                file.write(json.dumps(line) + "\n")
