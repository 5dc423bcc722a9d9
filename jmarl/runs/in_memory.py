"""Training in memory, for notebooks: writes no file, and keeps what a run on disk would write."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from jmarl.config.train_config import Config
from jmarl.errors import ConfigError
from jmarl.execution.cpu_devices import make_devices
from jmarl.execution.members import Snapshot
from jmarl.execution.named_leaves import named_arrays, unflatten_named
from jmarl.execution.population import Population, make_population
from jmarl.learning.ppo_loss import HyperParams
from jmarl.runs import directory as run_dir
from jmarl.runs.callbacks import Callbacks
from jmarl.runs.history import Entry
from jmarl.runs.loop import LoopResult, ResumePoint, Runner
from jmarl.runs.multi_seed import summarise_members
from jmarl.runs.progress import Screen
from jmarl.runs.recorder import NullRecorder, RunRecorder
from jmarl.runs.signals import Interruption
from jmarl.runs.single import member_directories, summarise
from jmarl.runs.terminal import make_console
from jmarl.runs.warm_start import load_warm_start


class Lines(NamedTuple):
    """What was logged at once."""

    kind: Literal["metrics", "evaluation"]
    entries: list[Entry]  # one for each member in training
    overall: Entry


class Kept(NamedTuple):
    """A state that would be a checkpoint."""

    update: int
    like: Snapshot  # shapes
    arrays: dict[str, np.ndarray]  # in the host's memory: a step donates its state's buffers
    score: float
    about: Entry


class MemoryRecorder(NullRecorder):
    """Keeps all lines, and the latest and the best state."""

    def __init__(self) -> None:
        self.lines: list[Lines] = []
        self.latest: Kept | None = None
        self.best: Kept | None = None

    def metrics(self, entries: list[Entry], overall: Entry) -> None:
        self.lines.append(Lines("metrics", entries, overall))

    def evaluation(self, entries: list[Entry], overall: Entry) -> None:
        self.lines.append(Lines("evaluation", entries, overall))

    def save(self, update: int, snapshot: Snapshot, score: float, about: dict[str, Any]) -> None:
        like = jax.eval_shape(lambda: snapshot)
        arrays = {name: np.array(array) for name, array in named_arrays(snapshot).items()}
        self.latest = Kept(update, like, arrays, score, about)
        if self.best is None or score > self.best.score:
            self.best = self.latest

    def entries(self, kind: Literal["metrics", "evaluation"]) -> Iterator[Entry]:
        """The lines of all members, in the order in which they came."""
        return (entry for line in self.lines if line.kind == kind for entry in line.entries)

    def repeat(self, recorder: RunRecorder) -> None:
        """Let another recorder write everything that is kept."""
        for line in self.lines:
            write = recorder.metrics if line.kind == "metrics" else recorder.evaluation
            write(line.entries, line.overall)
        assert self.latest is not None
        assert self.best is not None
        for kept in (self.best, self.latest) if self.best is not self.latest else (self.latest,):
            snapshot = unflatten_named(kept.like, kept.arrays)
            recorder.save(kept.update, snapshot, kept.score, kept.about)
        recorder.wait()


class Trained(NamedTuple):
    """A run in memory."""

    outcome: LoopResult
    population: Population
    recorder: MemoryRecorder


def train(config: Config, callbacks: Callbacks | None = None) -> Trained:
    """Shows progress on standard output, unless `config.quiet`. Signals stay the caller's, jax's
    configuration too: programs are cached only if the caller has set up a cache."""
    config.check()
    make_devices([(config, config.seeds)])
    population, recorder = make_population(config), MemoryRecorder()
    population.warm_start = load_warm_start(config, population.trainer)
    with Screen(make_console(sys.stdout), config.num_updates, config.quiet) as screen:
        given = (config, population, ResumePoint(), recorder, screen)
        outcome = Runner(*given, callbacks=callbacks).run(Interruption())
    return Trained(outcome, population, recorder)


def write_run(
    config: Config,
    recorder: MemoryRecorder,
    outcome: LoopResult,
    seeds: tuple[int, ...],
    hyper: HyperParams,
    path: Path,
    init_from: Mapping[str, Any] | None = None,
) -> None:
    """The directory that the command would have written, without the GIF. `hyper`: of the seeds;
    `init_from`: what a warm start has loaded."""
    if recorder.latest is None:
        raise ConfigError("the run has no state to save: it ended before its first update.")
    config = config.model_copy(update={"run_dir": path})
    run_dir.create(config)
    members = member_directories(config, seeds, path)
    writer = RunRecorder(path, config, members)
    with run_dir.lock(path), contextlib.closing(writer):
        writer.open(ResumePoint())
        here = (jax.default_backend(), len(jax.devices()))
        run_dir.record_devices(path, *here, update=0, init_from=init_from)
        recorder.repeat(writer)
    if members:
        summarise_members(members, outcome, hyper)
    places = [member.path for member in members] or [path]
    summarise(config, path, dict(zip(seeds, places, strict=True)), outcome)
