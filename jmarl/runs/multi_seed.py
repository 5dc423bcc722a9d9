"""Several members on disk: figures of each in a directory of its own, one checkpoint for all."""

import json
import os
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from jmarl.config.train_config import Config, to_yaml
from jmarl.execution import multihost
from jmarl.execution.members import Snapshot
from jmarl.execution.population import Crew
from jmarl.runs import directory as run_dir
from jmarl.runs.files import CHECKPOINTS, CONFIG, EVALUATIONS, MEMBER
from jmarl.runs.logs import Log, read_lines
from jmarl.runs.loop import Entry, Outcome, Selection, Start
from jmarl.runs.recorder import run_recorded, start_of
from jmarl.runs.saved_parameters import snapshot_shapes
from jmarl.runs.summaries import write_summary

if TYPE_CHECKING:
    from jmarl.runs.checkpoint import Checkpoints


class Place(NamedTuple):
    """Where one member's figures go."""

    path: Path
    config: Config  # as if it were alone

    def create(self, group: Path, member: int) -> None:
        self.path.mkdir(exist_ok=True)
        run_dir.replace_text(self.path / CONFIG, to_yaml(self.config))
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
        from jmarl.runs.checkpoint import Checkpoints

        return Checkpoints(self.path / CHECKPOINTS, self.config.keep_checkpoints)

    def take_up(self, crew: Crew) -> Start:
        """The latest whole checkpoint; without any the members begin again, as they did."""
        there = (self.path / CHECKPOINTS).is_dir()  # Orbax takes a second to import
        if not there or not self.checkpoints.updates():
            return Start()
        saved = self.checkpoints.latest(partial(snapshot_shapes, crew.population))
        return start_of(crew, saved.state, saved.about)

    def open(self, start: Start) -> None:
        """Lines of later updates come again; a run that begins anew has none."""
        update = -1 if start.states is None else start.update
        run_dir.keep_resumed(self.path, self.config)
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

    def save(self, update: int, snapshot: Snapshot, score: float, about: dict[str, Any]) -> None:
        self.checkpoints.save(update, snapshot, score, about)

    def last_saved(self) -> int | None:
        return max(self.checkpoints.updates(), default=None)

    def wait(self) -> None:
        self.checkpoints.wait()

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
    disk = GroupDisk(path, config, places)
    outcome = run_recorded(config, crew, disk, path, console, selection, assess)
    if not multihost.first():
        return outcome
    for member, place in enumerate(places):
        told = read_lines(place.path / EVALUATIONS)
        reached = told[-1]["update"] if told else 0  # some are dropped before the end
        hyper = {name: float(each[member]) for name, each in vars(crew.hyper).items()}
        further: dict[str, Any] = {"hyper": hyper}
        if member in outcome.failed:
            further |= {"failed": outcome.failed[member]}
        own = outcome._replace(evaluations=told, update=reached)
        write_summary(place.path, place.config, own, further)
    return outcome
