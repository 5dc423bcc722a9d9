"""Lives of a run that nobody thought of: trained, killed, interrupted, damaged, evaluated,
reported, in any order. All in one process, with programs that are compiled once."""

import contextlib
import os
import random
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from rich.console import Console

from benchmarks.faults.commands import here, in_child, misbehaved
from benchmarks.faults.contents import contents, difference, last_saved, lost_history
from benchmarks.faults.damage import WAYS
from benchmarks.faults.trials import REFUSED, Bench, Trial
from jmarl.config.train_config import Config, build
from jmarl.errors import ConfigError
from jmarl.execution.members import Snapshot
from jmarl.execution.population import Population, make_population
from jmarl.runs import single
from jmarl.runs.files import (
    CHECKPOINTS,
    CONFIG,
    EVALUATIONS,
    MARL_EVAL,
    METRICS,
    SUMMARY,
    VERSIONS,
    written_checkpoints,
)
from jmarl.runs.loop import Entry
from jmarl.runs.recorder import RunRecorder

RUN, COPY = Path("run"), Path("copy")  # always the same: a configuration has its directory
UPDATES = 8
OPTIONS: dict[str, Any] = {
    "algorithm": "ippo",
    "num_envs": 4,
    "rollout_length": 5,
    "total_updates": UPDATES,
    "log_every": 1,
    "eval_every": 3,
    "eval_episodes": 4,
    "checkpoint_every": 2,
    "keep_checkpoints": 2,
    "tensorboard": False,
    "gif": False,
    "compilation_cache": False,
    "devices": 1,
    "net": {"hidden": [8]},
    "ppo": {"epochs": 1, "num_minibatches": 1},
    "quiet": True,
}
EVENTS = UPDATES + UPDATES // 2 + 5  # about as many lines and checkpoints as a run writes
LONG = 25  # examples
FILES = (
    CHECKPOINTS,
    METRICS,
    VERSIONS,
    CHECKPOINTS,
    SUMMARY,
    EVALUATIONS,
    CHECKPOINTS,
    MARL_EVAL,
    CONFIG,
)


class Killed(BaseException):
    """In place of a SIGKILL, which would end the tests as well."""


class Watched(RunRecorder):
    """Does something after the event `at`: a line that was written, or a checkpoint."""

    at: int | None = None
    then: Callable[[], None] | None = None
    count = 0

    def metrics(self, entries: list[Entry], overall: Entry) -> None:
        super().metrics(entries, overall)
        self._happened()

    def evaluation(self, entries: list[Entry], overall: Entry) -> None:
        super().evaluation(entries, overall)
        self._happened()

    def save(self, update: int, snapshot: Snapshot, score: float, about: Entry) -> None:
        super().save(update, snapshot, score, about)
        self._happened()

    def _happened(self) -> None:
        self.count += 1
        if self.count == self.at and self.then is not None:
            self.wait()
            self.then()


def _watched(at: int | None, then: Callable[[], None] | None, *given: Any) -> Watched:
    made = Watched(*given)
    made.at, made.then = at, then
    return made


class Ground:
    """What all examples share: the compiled programs, and the uninterrupted run."""

    def __init__(self) -> None:
        self._compiled = make_population(self.config(None))
        self._compiled.compile()
        self.train()
        self.whole = contents(RUN)

    def config(self, path: Path | None) -> Config:
        return build(OPTIONS | {"run_dir": path})

    def population(self, config: Config) -> Population:
        """A new one, with the programs of the first."""
        made = make_population(config)
        made.programs, made.mesh = self._compiled.programs, self._compiled.mesh
        made.compile = lambda: None
        return made

    def train(self, at: int | None = None, then: Callable[[], None] | None = None) -> None:
        """To the end, or until something happens."""
        config = self.config(RUN)
        if (RUN / CONFIG).is_file():
            config = build(single.resumed_values(RUN))
            single.check_continuation(config)
        recorder = partial(_watched, at, then)
        with _in_place(single, make_population=self.population, RunRecorder=recorder):
            single.run(config, Console(quiet=True))


@contextmanager
def _in_place(module: Any, **given: Any) -> Iterator[None]:
    before = {name: getattr(module, name) for name in given}
    for name, value in given.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


class Histories(RuleBasedStateMachine):
    """One run. At its end it must be what the uninterrupted one is, but for files that were
    damaged."""

    ground: Ground

    @initialize()
    def begin(self) -> None:
        shutil.rmtree(RUN, ignore_errors=True)
        self.damaged: set[str] = set()

    @rule(at=st.integers(1, EVENTS))
    def killed(self, at: int) -> None:
        def kill() -> None:
            shutil.rmtree(COPY, ignore_errors=True)
            shutil.copytree(RUN, COPY)
            raise Killed

        try:
            self._train(at, kill)
        except Killed:
            shutil.rmtree(RUN)
            COPY.rename(RUN)
        self._keeps_its_history()

    @rule(at=st.integers(1, EVENTS))
    def interrupted(self, at: int) -> None:
        self._train(at, lambda: os.kill(os.getpid(), signal.SIGTERM))
        self._keeps_its_history()

    @precondition(lambda self: (RUN / CONFIG).is_file())
    @rule(name=st.sampled_from(FILES), way=st.sampled_from(sorted(WAYS)), seed=st.integers(0, 99))
    def damage(self, name: str, way: str, seed: int) -> None:
        """One file; of checkpoints the latest, if there is another one."""
        chance, path = random.Random(seed), RUN / name
        if name == CHECKPOINTS:
            saved = written_checkpoints(path)
            inside = sorted((path / f"update_{max(saved)}").rglob("*")) if len(saved) > 1 else []
            path = chance.choice([each for each in inside if each.is_file()] or [RUN / name])
        if not path.is_file():
            return
        before = path.read_bytes()
        WAYS[way](path, chance)
        if name == CONFIG:
            self._is_refused(path, before)
        else:
            self.damaged.add(name)

    def _is_refused(self, path: Path, before: bytes) -> None:
        """Without its configuration, a run stays as it is."""
        expected = contents(RUN)
        with suppress(ConfigError):
            self._train()
            raise AssertionError("a run with a damaged configuration went on")
        assert contents(RUN) == expected
        path.write_bytes(before)

    @precondition(lambda self: (RUN / CONFIG).is_file())
    @rule(which=st.sampled_from(("latest", "best")))
    def evaluated(self, which: Any) -> None:
        """Reading changes nothing."""
        from jmarl import load_policy

        before = contents(RUN)
        with suppress(ConfigError):  # no checkpoint yet
            policy = load_policy(RUN, which)
            assert np.isfinite(policy.act(np.zeros((3, 18))).action).all()
        assert contents(RUN) == before

    @precondition(lambda self: (RUN / CONFIG).is_file())
    @rule()
    def reported(self) -> None:
        assert misbehaved(here("report", RUN, "--no-replays"), (0, REFUSED)) == ""

    def teardown(self) -> None:
        if not hasattr(self, "damaged"):
            return
        self._train()
        lines = {METRICS, EVALUATIONS} & self.damaged
        apart = (*lines, "report.html", *((MARL_EVAL, SUMMARY) if lines else ()))
        problem = difference(contents(RUN), self.ground.whole, apart)
        assert not problem, problem
        assert len(written_checkpoints(RUN / CHECKPOINTS)) <= 3  # two and the best

    def _train(self, at: int | None = None, then: Any = None) -> None:
        try:
            self.ground.train(at, then)
        except ConfigError as error:
            if "has done its" not in str(error):
                raise

    def _keeps_its_history(self) -> None:
        if not {METRICS, EVALUATIONS} & self.damaged:
            problem = lost_history(RUN, self.ground.whole)
            assert not problem, problem
        assert last_saved(RUN) in (-1, *range(UPDATES + 1))


def lived(place: Path, examples: int, steps: int) -> None:
    """Raises if some history ends otherwise than it should."""
    (place / "lives").mkdir(parents=True)
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        verbosity=Verbosity.normal,
    )
    with contextlib.chdir(place / "lives"):
        machine = type("Histories", (Histories,), {"ground": Ground()})
        run_state_machine_as_test(machine, settings=options)


def live(bench: Bench, kind: str) -> None:
    in_child(bench, kind, live_each)


def live_each(bench: Bench, kind: str) -> None:
    examples, problem = bench.times(LONG), ""
    warnings.simplefilter("ignore")  # every history has damaged files
    try:
        lived(bench.place / kind, examples, steps=8)
    except Exception as error:
        notes = " | ".join(getattr(error, "__notes__", []))
        problem = f"{type(error).__name__}: {error} {notes}"[:2000]
    bench.tell(Trial(kind, f"{examples} histories", problem))
