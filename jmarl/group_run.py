"""Several members on disk: figures of each in a directory of its own, one checkpoint for all."""

import contextlib
import json
import os
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from jmarl import run_dir
from jmarl.config import Config, to_yaml
from jmarl.crew import Best, Crew, Parameters
from jmarl.errors import ConfigError
from jmarl.interruption import Interruption
from jmarl.logs import EVALS, Log, read_lines
from jmarl.objective import Hyper
from jmarl.population import Population
from jmarl.runner import Entry, Outcome, Runner, Selection, Start
from jmarl.screen import Screen
from jmarl.summaries import write_summary
from jmarl.trainer import Trainer
from jmarl.types import State

if TYPE_CHECKING:
    from jmarl.checkpoint import Checkpoints

MEMBER = "member.json"


class Snapshot(NamedTuple):
    """What a checkpoint of several members holds."""

    states: State  # [A, …] of those in training
    best: Parameters  # [M, …] of all
    hyper: Hyper  # [M]


class Place(NamedTuple):
    """Where one member's figures go."""

    path: Path
    config: Config  # as if it were alone

    def create(self, group: Path, member: int) -> None:
        self.path.mkdir(exist_ok=True)
        run_dir.replace_text(self.path / "config.yaml", to_yaml(self.config))
        about = {"group": os.path.relpath(group, self.path), "member": member}
        run_dir.replace_text(self.path / MEMBER, json.dumps(about))


class GroupDisk:
    """Figures of each member and of all together; checkpoints of all."""

    def __init__(self, path: Path, config: Config, places: list[Place]) -> None:
        self.path, self.config, self.places = path, config, places
        self.log: Log
        self.logs: list[Log] = []

    @cached_property
    def checkpoints(self) -> "Checkpoints":
        from jmarl.checkpoint import Checkpoints

        return Checkpoints(self.path / "checkpoints", self.config.keep_checkpoints)

    def open_logs(self, start: Start) -> None:
        """Lines of later updates come again; a run that begins anew has none."""
        update = -1 if start.states is None else start.update
        self.log = Log(self.path, self.config, update)
        for member, place in enumerate(self.places):
            place.create(self.path, member)
            lines_only = place.config.model_copy(update={"tensorboard": False, "wandb": False})
            self.logs.append(Log(place.path, lines_only, update))

    def metrics(self, entries: list[Entry], overall: Entry) -> None:
        for entry in entries:
            self.logs[entry["member"]].metrics(entry)
        self.log.metrics(overall)

    def evaluation(self, entries: list[Entry], overall: Entry) -> None:
        for entry in entries:
            self.logs[entry["member"]].evaluation(entry)
        self.log.evaluation(overall)

    def save(self, update: int, crew: Crew, score: float, about: dict[str, Any]) -> None:
        if crew.best is None:
            crew.keep_best(np.full(len(crew.alive), -np.inf), update, crew.parameters())
        best = crew.best
        assert best is not None
        about = about | {
            "alive": crew.alive.tolist(),
            "best_score": best.score.tolist(),
            "best_update": best.update.tolist(),
        }
        hyper = jax.tree.map(lambda x: jnp.asarray(x, float), crew.hyper)
        snapshot = Snapshot(crew.states(), best.parameters, hyper)
        self.checkpoints.save(update, snapshot, score, about)

    def last_saved(self) -> int | None:
        return max(self.checkpoints.updates(), default=None)

    def close(self) -> None:
        for log in (*self.logs, *([self.log] if hasattr(self, "log") else [])):
            log.close()
        if "checkpoints" in vars(self):
            self.checkpoints.close()


def run_group(
    config: Config,
    crew: Crew,
    path: Path,
    places: list[Place],
    console: Console,
    selection: Selection | None = None,
    assess: bool = True,
) -> Outcome:
    """Train to the end of the budget, from the latest checkpoint in `path` if there is one."""
    with run_dir.claimed(path), contextlib.closing(GroupDisk(path, config, places)) as disk:
        start = _take_up(crew, disk)
        if start.update >= config.num_updates:
            raise ConfigError(
                f"{str(path)!r} has done its {start.update} updates; give it more, such as "
                f"{config.more(2 * start.update)}."
            )
        disk.open_logs(start)
        interruption = Interruption()
        with Screen(console, config.num_updates, config.quiet) as screen, interruption.watched():
            if start.update:
                screen.note(f"resumed {path} after update {start.update}")
            runner = Runner(config, crew, start, disk, screen, selection, assess)
            outcome = runner.run(interruption)
        disk.checkpoints.wait()
    for member, place in enumerate(places):
        told = read_lines(place.path / EVALS)
        reached = told[-1]["update"] if told else 0  # some are dropped before the end
        hyper = {name: float(each[member]) for name, each in vars(crew.hyper).items()}
        further: dict[str, Any] = {"hyper": hyper}
        if member in runner.failed:
            further |= {"failed": runner.failed[member]}
        own = outcome._replace(evaluations=told, update=reached)
        write_summary(place.path, place.config, own, further)
    return outcome


def shapes(population: Population, about: dict[str, Any]) -> Snapshot:
    """Of a checkpoint, from what was saved along with it."""

    def states(members: int) -> State:
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), members))
        return jax.eval_shape(population.init, keys)

    count = len(about["best_score"])
    everybody = states(count)
    number = jax.eval_shape(lambda: jnp.zeros(count))
    return Snapshot(
        states=states(len(about["alive"])),
        best=Parameters(everybody.params, everybody.normalisers),
        hyper=jax.tree.map(lambda _: number, Hyper()),
    )


def _take_up(crew: Crew, disk: GroupDisk) -> Start:
    checkpoints = disk.checkpoints
    if not checkpoints.updates():
        return Start()
    saved = checkpoints.latest(partial(shapes, crew.population))
    snapshot, about = saved.state, saved.about
    crew.hyper = jax.tree.map(np.asarray, snapshot.hyper)
    best = Best(np.array(about["best_score"]), np.array(about["best_update"]), snapshot.best)
    failed = {int(member): what for member, what in about["failed"].items()}
    alive = np.array(about["alive"])
    return Start(snapshot.states, alive, saved.update, about["seconds"], best, failed)


def member_parameters(path: Path, trainer: Trainer, which: str) -> Parameters:
    """Of the member whose directory `path` is, from its group's latest checkpoint. Those that were
    dropped have only their best."""
    from jmarl.checkpoint import Checkpoints

    about = json.loads((path / MEMBER).read_text())
    member, directory = about["member"], path / about["group"] / "checkpoints"
    if not directory.is_dir():
        raise ConfigError(f"{str(path)!r} has no checkpoints yet.")
    population, checkpoints = Population(trainer), Checkpoints(directory, read_only=True)
    try:
        saved = checkpoints.latest(partial(shapes, population))
    finally:
        checkpoints.close()
    alive = saved.about["alive"]
    if which == "latest" and member in alive:
        state = population.take(saved.state.states, alive.index(member))
        return Parameters(state.params, state.normalisers)
    return jax.tree.map(lambda x: x[member], saved.state.best)
