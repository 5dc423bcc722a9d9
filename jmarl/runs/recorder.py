"""A crew in training and its record on disk: taken up where the record ends."""

import contextlib
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from jmarl.config.train_config import Config
from jmarl.errors import ConfigError
from jmarl.execution import multihost
from jmarl.execution.members import Best, Snapshot
from jmarl.execution.named_leaves import named_arrays, placed
from jmarl.execution.population import Crew
from jmarl.runs import directory as run_dir
from jmarl.runs.loop import Entry, Outcome, Runner, Selection, Sink, Start
from jmarl.runs.progress import Screen
from jmarl.runs.saved_parameters import snapshot_shapes
from jmarl.runs.signals import Interruption
from jmarl.runs.user_dirs import cache_compiled_programs


class Record(Sink, Protocol):
    """A sink that can be read again."""

    def take_up(self, crew: Crew) -> Start: ...
    def open(self, start: Start) -> None: ...
    def wait(self) -> None: ...
    def close(self) -> None: ...


class Unrecorded:
    """Keeps nothing."""

    def take_up(self, crew: Crew) -> Start:
        del crew
        return Start()

    def open(self, start: Start) -> None:
        del start

    def metrics(self, entries: list[Entry], overall: Entry) -> None:
        del entries, overall

    def evaluation(self, entries: list[Entry], overall: Entry) -> None:
        del entries, overall

    def save(self, update: int, snapshot: Snapshot, score: float, about: dict[str, Any]) -> None:
        del update, snapshot, score, about

    def last_saved(self) -> int | None:
        return None

    def wait(self) -> None:
        pass

    def close(self) -> None:
        pass


def run_recorded(
    config: Config,
    crew: Crew,
    record: Record,
    path: Path,
    console: Console,
    selection: Selection | None = None,
    assess: bool = True,
) -> Outcome:
    """Train to the end of the budget, from where the record ends. Where processes are several, the
    first one keeps the record."""
    record = record if multihost.first() else Unrecorded()
    claim = run_dir.claimed(path) if multihost.first() else contextlib.nullcontext()
    with claim, contextlib.closing(record):
        start = _shared_start(crew, record)
        if start.update >= config.num_updates:
            raise ConfigError(
                f"{str(path)!r} has done its {start.update} updates; give it more, such as "
                f"{config.more(2 * start.update)}."
            )
        record.open(start)
        if multihost.first():
            platform = jax.default_backend()
            run_dir.record_devices(path, platform, len(crew.devices), start.update)
        if config.compilation_cache:
            cache_compiled_programs()
        interruption, quiet = Interruption(), config.quiet or not multihost.first()
        with Screen(console, config.num_updates, quiet) as screen, interruption.watched():
            if start.update:
                screen.note(f"resumed {path} after update {start.update}")
            runner = Runner(config, crew, start, record, screen, selection, assess)
            outcome = runner.run(interruption)
        record.wait()
    return outcome


def _shared_start(crew: Crew, record: Record) -> Start:
    """What the first process reads, in all of them."""
    if not multihost.several():
        return record.take_up(crew)

    def read() -> bytes:
        start = record.take_up(crew)
        if start.states is None or start.best is None or start.alive is None:
            return multihost.packed({}, {})
        about = {
            "update": start.update,
            "seconds": start.seconds,
            "failed": start.failed,
            "alive": start.alive.tolist(),
            "best_score": start.best.score.tolist(),
            "best_update": start.best.update.tolist(),
        }
        hyper = jax.tree.map(jnp.asarray, crew.hyper)
        return multihost.packed(
            about, named_arrays(Snapshot(start.states, start.best.parameters, hyper))
        )

    about, arrays = multihost.unpacked(multihost.from_first(read))
    if not about:
        return Start()
    return start_of(crew, placed(snapshot_shapes(crew.population, about), arrays), about)


def start_of(crew: Crew, saved: Snapshot, about: dict[str, Any]) -> Start:
    """Where a checkpoint leaves off; the crew takes over its hyperparameters."""
    crew.hyper = jax.tree.map(np.asarray, saved.hyper)
    best = Best(np.array(about["best_score"]), np.array(about["best_update"]), saved.best)
    failed = {int(member): what for member, what in about["failed"].items()}
    return Start(
        states=saved.states,
        alive=np.array(about["alive"]),
        update=about["update"],
        seconds=about["seconds"],
        best=best,
        failed=failed,
    )
