"""A run, with its effects: chunks of compiled updates, and between them screen and disk."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from jmarl.algorithms import make_trainer
from jmarl.config import Config
from jmarl.envs.base import EnvSpec
from jmarl.errors import RunError
from jmarl.evaluation import Episodes, described
from jmarl.objective import Hyper
from jmarl.programs import compile_programs
from jmarl.screen import Screen
from jmarl.trainer import Trainer
from jmarl.types import State

ABSOLUTE = 10  # times the episodes of an evaluation, for the best parameters at the end
NO_SCORE = -1e30  # of checkpoints that were not evaluated


class Best(NamedTuple):
    """The parameters that evaluated best so far."""

    score: float
    update: int
    params: tuple[Any, ...]
    norms: Any


class Start(NamedTuple):
    """Where a run is taken up."""

    state: State | None = None  # None: at the beginning
    update: int = 0
    seconds: float = 0.0  # of training before
    best: Best | None = None


class Sink(Protocol):
    """What becomes of figures and states."""

    def metrics(self, entry: dict[str, Any]) -> None: ...
    def evaluation(self, entry: dict[str, Any]) -> None: ...
    def save(self, update: int, state: State, score: float, about: dict[str, Any]) -> None: ...
    def last_saved(self) -> int | None: ...


class Outcome(NamedTuple):
    state: State
    update: int  # updates done, from the very beginning
    seconds: float  # of training, likewise
    metrics: list[dict[str, Any]]  # one entry a chunk of updates
    evaluations: list[dict[str, Any]]
    stopped_by: int | None  # the signal that cut the run short


def cache_compiled_programs() -> None:
    """Keep what XLA compiles in the user's cache directory, for the next run."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    jax.config.update("jax_compilation_cache_dir", str(home / "jmarl" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


class Interruption:
    """Remembers the first SIGINT or SIGTERM; a second one is no longer held back."""

    signal: int | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        before = {}

        def remember(number: int, frame: object) -> None:
            del frame
            self.signal = number
            for watched, handler in before.items():
                signal.signal(watched, handler)

        with contextlib.suppress(ValueError):  # only the main thread may watch
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, remember)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Runner:
    """One run: its programs, and where it stands."""

    def __init__(
        self,
        config: Config,
        trainer: Trainer,
        hyper: Hyper,
        start: Start,
        sink: Sink,
        screen: Screen,
    ) -> None:
        self.config, self.start, self.sink, self.screen = config, start, sink, screen
        self.trainer, self.hyper = trainer, hyper
        self.best = start.best
        self.evaluations: list[dict[str, Any]] = []
        self.metrics: list[dict[str, Any]] = []

    def run(self, interruption: Interruption) -> Outcome:
        """To the end of the budget, or of the chunk in which a signal came."""
        config = self.config
        if config.compilation_cache:
            cache_compiled_programs()
        init_key, self._eval_key = jax.random.split(jax.random.key(config.seed))
        compiling = time.perf_counter()
        self._programs = compile_programs(self.trainer, self.hyper, config.eval_episodes)
        compiled = {"charts/compile_s": time.perf_counter() - compiling}
        state = self._programs.init(init_key) if self.start.state is None else self.start.state
        done, began = self.start.update, time.perf_counter()
        while done < config.num_updates and interruption.signal is None:
            length = min(config.log_every - done % config.log_every, config.num_updates - done)
            # copied, for a step takes the memory of its state
            untrained = None if done else _copied((state.params, state.normalisers))
            updates = []
            for _ in range(length):  # dispatched without waiting: nothing is read until the end
                state, metrics = self._programs.step(state, self.hyper)
                updates.append(metrics)
            if untrained is not None:
                self._evaluate(0, 0.0, *untrained)
            entry = self._entry(done, jax.device_get(updates))
            done += length
            elapsed = time.perf_counter() - began
            entry["seconds"] = self.start.seconds + elapsed
            steps = (done - self.start.update) * config.steps_per_update
            entry["charts/SPS"] = steps / elapsed
            if not self.metrics:
                entry |= compiled
            self.metrics.append(entry)
            self.sink.metrics(entry)
            self.screen.show(entry)
            evaluated = None
            every = config.updates_between_evaluations
            if _crossed(done, length, every) or done == config.num_updates:
                evaluated = self._evaluate(done, entry["seconds"], state.params, state.normalisers)
            at_end = interruption.signal is not None or done == config.num_updates
            best = self.best is not None and self.best.update == done
            if at_end or best or _crossed(done, length, config.checkpoint_every or every):
                self._save(done, entry["seconds"], state, evaluated)
        seconds = self.metrics[-1]["seconds"] if self.metrics else self.start.seconds
        if interruption.signal is None:
            self._assess_best(done, seconds)
        told = (self.metrics, self.evaluations)
        return Outcome(state, done, seconds, *told, interruption.signal)

    def _entry(self, before: int, updates: list[dict[str, Any]]) -> dict[str, Any]:
        """Means over a chunk, after a look for what is not finite."""
        skip = self.config.on_nonfinite == "skip"
        for i, update in enumerate(updates, start=before + 1):
            for name, value in update.items():
                if not skip and name.startswith("losses/") and _broken(name, value):
                    raise self._nonfinite(i, name, float(value))
        mean = _finite_mean if skip else np.mean
        done = before + len(updates)
        entry: dict[str, Any] = {"update": done, "steps": done * self.config.steps_per_update}
        return entry | {
            name: float(mean([update[name] for update in updates])) for name in updates[0]
        }

    def _nonfinite(self, update: int, name: str, value: float) -> RunError:
        saved = self.sink.last_saved()
        last = "no checkpoint yet" if saved is None else f"the last good checkpoint: update {saved}"
        return RunError(
            f"update {update}: {name} is {value} ({last}). A smaller --ppo.lr or "
            "--ppo.max-grad-norm may help; --on-nonfinite skip leaves such updates out."
        )

    def _evaluate(self, update: int, seconds: float, params: Any, norms: Any) -> dict[str, Any]:
        """Greedy and sampled, on the same initial states every time."""
        spec = self.trainer.env.spec
        entry: dict[str, Any] = {
            "update": update,
            "steps": update * self.config.steps_per_update,
            "seconds": seconds,
        }
        for prefix, greedy in (("eval", True), ("eval_sampled", False)):
            seen = self._programs.score(params, norms, self._eval_key, jnp.asarray(greedy))
            entry |= described(spec, seen, prefix)
        score = _score(spec, entry, update)
        if update and (self.best is None or score > self.best.score):
            self.best = Best(score, update, *_copied((params, norms)))
        self.evaluations.append(entry)
        self.sink.evaluation(entry)
        self.screen.show(entry)
        return entry

    def _save(
        self, update: int, seconds: float, state: State, evaluated: dict[str, Any] | None
    ) -> None:
        spec = self.trainer.env.spec
        score = NO_SCORE if evaluated is None else _score(spec, evaluated, update)
        self.sink.save(update, state, score, {"update": update, "seconds": seconds})

    def _assess_best(self, update: int, seconds: float) -> None:
        """The absolute metric: the best parameters over ten times the episodes."""
        if self.best is None:
            return
        parts = [
            self._programs.score(
                self.best.params,
                self.best.norms,
                jax.random.fold_in(self._eval_key, i),
                jnp.asarray(True),
            )
            for i in range(1, ABSOLUTE + 1)
        ]
        seen = jax.tree.map(lambda *x: np.concatenate(x), *parts)
        entry = {
            "update": update,
            "steps": update * self.config.steps_per_update,
            "seconds": seconds,
            "absolute": True,
            "best_update": self.best.update,
        }
        entry |= described(self.trainer.env.spec, Episodes(*seen), "absolute")
        self.evaluations.append(entry)
        self.sink.evaluation(entry)


def _score(spec: EnvSpec, evaluated: dict[str, Any], update: int) -> float:
    """What makes parameters the best: the greedy return. Between opponents there is no such
    measure, so there the latest is."""
    return evaluated["eval/return_mean"] if spec.cooperative else float(update)


def _crossed(done: int, length: int, every: int) -> bool:
    """Whether a multiple of `every` lies in the last `length` updates."""
    return (done - length) // every < done // every


def _broken(name: str, value: Any) -> bool:
    """Explained variance may be undefined: returns can all be equal."""
    return name.split("/")[1] != "explained_variance" and not np.isfinite(value)


def _finite_mean(values: list[Any]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite)) if finite else math.nan


def _copied(tree: Any) -> Any:
    return jax.tree.map(jnp.copy, tree)


class Nowhere:
    """Keeps nothing."""

    def metrics(self, entry: dict[str, Any]) -> None:
        del entry

    def evaluation(self, entry: dict[str, Any]) -> None:
        del entry

    def save(self, update: int, state: State, score: float, about: dict[str, Any]) -> None:
        del update, state, score, about

    def last_saved(self) -> int | None:
        return None


def train(config: Config, console: Console | None = None) -> Outcome:
    """Train in memory: nothing is written. `console`: where progress is shown, if anywhere."""
    config.check()
    screen = Screen(console or Console(), config.num_updates, quiet=console is None)
    with screen:
        return Runner(config, *make_trainer(config), Start(), Nowhere(), screen).run(Interruption())
