"""Training with its effects: chunks of compiled updates, and between them screen and disk. One run
or many members of a crew: every figure is taken for each."""

import math
import time
import warnings
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.config.train_config import Config
from jmarl.envs.base import EnvSpec
from jmarl.errors import RunError
from jmarl.execution import multihost
from jmarl.execution.members import NO_SCORE, Best, Parameters, Snapshot
from jmarl.execution.population import Crew
from jmarl.learning.episodes import Episodes, described
from jmarl.runs.progress import Screen
from jmarl.runs.signals import Interruption
from jmarl.runs.watchdog import SECONDS, Watchdog
from jmarl.stats import bootstrap_interval, iqm
from jmarl.types import State

ABSOLUTE = 10  # times the episodes of an evaluation, for the best parameters at the end

Entry = dict[str, Any]


class Start(NamedTuple):
    """Where training is taken up."""

    states: State | None = None  # [A, …]; None: at the beginning
    alive: np.ndarray | None = None  # whose states these are
    update: int = 0
    seconds: float = 0.0  # of training before
    best: Best | None = None
    failed: dict[int, str] = {}  # noqa: RUF012 (never changed)


class Sink(Protocol):
    """What becomes of figures and states. Entries are of the members in training, in order."""

    def metrics(self, entries: list[Entry], overall: Entry) -> None: ...
    def evaluation(self, entries: list[Entry], overall: Entry) -> None: ...
    def save(self, update: int, snapshot: Snapshot, score: float, about: Entry) -> None: ...
    def last_saved(self) -> int | None: ...


class Selection(Protocol):
    """Who goes on, and with what: decided between chunks of updates."""

    def next(self, done: int) -> int | None:
        """The update after which it is due."""
        ...

    def apply(self, crew: Crew, scores: np.ndarray, update: int) -> None:
        """`scores` `[A]` of the members in training; NaN where one has failed."""
        ...


class Outcome(NamedTuple):
    state: State  # of several members: [A, …]
    update: int  # updates done, from the very beginning
    seconds: float  # of training, likewise
    metrics: list[Entry]  # one entry a chunk of updates (and member, where there are several)
    evaluations: list[Entry]
    stopped_by: int | None  # the signal that cut the run short
    failed: dict[int, str]  # member → what was not finite


class Runner:
    """One crew to the end of its budget."""

    def __init__(
        self,
        config: Config,
        crew: Crew,
        start: Start,
        sink: Sink,
        screen: Screen,
        selection: Selection | None = None,
        assess: bool = True,
    ) -> None:
        """`assess`: score the best parameters at the end once more, over many episodes."""
        self.config, self.crew, self.start = config, crew, start
        self.sink, self.screen = sink, screen
        self.selection, self.assess = selection, assess
        self.failed = dict(start.failed)  # member → what was not finite
        self.evaluations: list[Entry] = []
        self.metrics: list[Entry] = []

    def run(self, interruption: Interruption) -> Outcome:
        """To the end of the budget, or of the chunk in which a signal came."""
        config, crew, start = self.config, self.crew, self.start
        self.screen.note(f"devices: {len(crew.devices)} ({jax.default_backend()})")
        compiling = time.perf_counter()
        crew.compile()
        compiled = {"charts/compile_s": time.perf_counter() - compiling}
        if start.states is None:
            crew.begin()
        else:
            assert start.alive is not None
            crew.take_up(start.states, start.alive, start.best)
        done, steps, began = start.update, 0, time.perf_counter()
        stopped = multihost.anywhere(interruption.signal)
        while done < config.num_updates and stopped is None:
            length = self._chunk(done)
            # copied, because a step donates its state's buffers
            untrained = None if done else jax.block_until_ready(_copied(crew.parameters()))
            with Watchdog(self._warn_of_stall) as watchdog:
                running = crew.advance(length, watchdog.alive)
                if untrained is not None:  # while the first updates run
                    self._evaluate(0, 0.0, untrained)
                entries = self._entries(done, crew.read(running))
            done += length
            elapsed = time.perf_counter() - began
            seconds = start.seconds + elapsed
            steps += length * config.steps_per_update * len(crew.alive)
            timed = {"seconds": seconds, "charts/SPS": steps / elapsed}
            self._tell_metrics(entries, timed | ({} if self.metrics else compiled))
            stopped = multihost.anywhere(interruption.signal)
            due = self.selection is not None and self.selection.next(done - length) == done
            every = config.updates_between_evaluations
            scores = None
            if due or _crossed(done, length, every) or done == config.num_updates:
                scores = self._evaluate(done, seconds, crew.parameters())
                if due and self.selection is not None and done < config.num_updates:
                    self.selection.apply(crew, scores, done)
            at_end = stopped is not None or done == config.num_updates
            improved = scores is not None and crew.best is not None and done in crew.best.update
            if (
                at_end
                or improved
                or due
                or _crossed(done, length, config.checkpoint_every or every)
            ):
                self._save(done, seconds, scores)
        seconds = self.metrics[-1]["seconds"] if self.metrics else start.seconds
        if stopped is None and self.assess:
            self._assess_best(done, seconds)
        state = crew.batches[0] if crew.alone else crew.states()
        told = (self.metrics, self.evaluations)
        return Outcome(state, done, seconds, *told, stopped, self.failed)

    def _chunk(self, done: int) -> int:
        """Updates until something is logged, decided or at its end."""
        every, due = self.config.log_every, None
        if self.selection is not None:
            due = self.selection.next(done)
        ends = (done - done % every + every, self.config.num_updates, due)
        return min(end for end in ends if end is not None) - done

    def _entries(self, before: int, updates: dict[str, np.ndarray]) -> list[Entry]:
        """Of each member means over a chunk, after a look for what is not finite."""
        skip = self.config.on_nonfinite == "skip"
        if not skip:
            self._look_for_failures(before, updates)
        done = before + len(next(iter(updates.values())))
        mean = _finite_mean if skip else np.mean
        return [
            self._about(member, done)
            | {name: float(mean(values[:, i])) for name, values in updates.items()}
            for i, member in enumerate(self.crew.alive)
        ]

    def _about(self, member: Any, update: int) -> Entry:
        about: Entry = {"update": update, "steps": update * self.config.steps_per_update}
        return about if self.crew.alone else {"member": int(member)} | about

    def _look_for_failures(self, before: int, updates: dict[str, np.ndarray]) -> None:
        """A run alone stops. Of several members one that fails is told of and counts no more; when
        all have failed, nothing is left to do."""
        crew = self.crew
        for name, values in updates.items():
            if not name.startswith("losses/") or name.split("/")[1] == "explained_variance":
                continue  # which may be undefined: returns can all be equal
            for i, member in enumerate(crew.alive):
                broken = np.flatnonzero(~np.isfinite(values[:, i]))
                if broken.size and int(member) not in self.failed:
                    at = before + 1 + int(broken[0])
                    self.failed[int(member)] = f"update {at}: {name} is {values[broken[0], i]}"
        if set(map(int, crew.alive)) <= self.failed.keys():
            raise self._nonfinite(self.failed[int(crew.alive[0])])

    def _nonfinite(self, what: str) -> RunError:
        saved = self.sink.last_saved()
        last = "no checkpoint yet" if saved is None else f"the last good checkpoint: update {saved}"
        return RunError(
            f"{what} ({last}). A smaller --ppo.lr or --ppo.max-grad-norm may help; "
            "--on-nonfinite skip leaves such updates out."
        )

    def _tell_metrics(self, entries: list[Entry], timed: Entry) -> None:
        entries = [entry | timed for entry in entries]
        self.metrics += entries
        overall = _overall(entries)
        self.sink.metrics(entries, overall)
        self.screen.show(overall)

    def _evaluate(self, update: int, seconds: float, parameters: list[Parameters]) -> np.ndarray:
        """Greedy and sampled, on the same initial states every time. Gives the scores `[A]`."""
        crew, spec = self.crew, self.crew.trainer.env.spec
        entries = [self._about(m, update) | {"seconds": seconds} for m in crew.alive]
        for prefix, greedy in (("eval", True), ("eval_sampled", False)):
            seen = crew.play(parameters, greedy)
            for i, entry in enumerate(entries):
                entry |= described(spec, jax.tree.map(lambda x, i=i: x[i], seen), prefix)
        scores = np.array([_score(spec, entry, update) for entry in entries])
        scores[[int(m) in self.failed for m in crew.alive]] = np.nan
        if update:
            crew.keep_best(scores, update, parameters)
        overall = _overall(entries)
        if not crew.alone:
            overall |= _spread(scores)
        self.evaluations += entries
        self.sink.evaluation(entries, overall)
        self.screen.show(overall)
        return scores

    def _save(self, update: int, seconds: float, scores: np.ndarray | None) -> None:
        score = NO_SCORE if scores is None else float(np.nan_to_num(scores, nan=NO_SCORE).max())
        about = {"update": update, "seconds": seconds, "failed": self.failed}
        snapshot, further = self.crew.snapshot()
        self.sink.save(update, snapshot, score, about | further)

    def _warn_of_stall(self) -> None:
        """XLA aborts the process when devices wait too long for each other (see `cpu_devices`)."""
        saved, last = self.sink.last_saved(), "there is no checkpoint yet"
        if saved is not None:
            last = f"--resume then goes on after update {saved}, the last checkpoint"
        warnings.warn(
            f"no update has finished for {SECONDS // 60} minutes. If devices have lost each other, "
            f"the process will be aborted; {last}.",
            stacklevel=1,
        )

    def _assess_best(self, update: int, seconds: float) -> None:
        """The absolute metric: the best parameters over ten times the episodes."""
        crew, best = self.crew, self.crew.best
        if best is None:
            return
        parameters = crew.best_parameters()
        rounds = [crew.play(parameters, greedy=True, fold=i) for i in range(1, ABSOLUTE + 1)]
        seen = Episodes(*jax.tree.map(lambda *x: np.concatenate(x, axis=1), *rounds))
        entries = []
        for i, member in enumerate(crew.alive):
            about: Entry = {"seconds": seconds, "absolute": True}
            about["best_update"] = int(best.update[member])
            own = jax.tree.map(lambda x, i=i: x[i], seen)
            told = described(crew.trainer.env.spec, own, "absolute")
            entries.append(self._about(member, update) | about | told)
        self.evaluations += entries
        self.sink.evaluation(entries, _overall(entries))


@jax.jit
def _copied(tree: Any) -> Any:
    return jax.tree.map(jnp.copy, tree)


def _score(spec: EnvSpec, evaluated: Entry, update: int) -> float:
    """What makes parameters the best: the greedy return. Between opponents there is no such
    measure, so there the latest is."""
    return evaluated["eval/return_mean"] if spec.cooperative else float(update)


def _overall(entries: list[Entry]) -> Entry:
    """Means over members."""
    first = entries[0]
    if len(entries) == 1:
        return first
    means = {k: float(np.nanmean([e[k] for e in entries])) for k in first if "/" in k}
    return first | means | {"member": None}


def _spread(scores: np.ndarray) -> Entry:
    """How members' returns lie: the interquartile mean with its interval, and the best."""
    known = scores[np.isfinite(scores)]
    if not known.size:
        return {}
    low, high = bootstrap_interval(known)
    return {
        "members/return_iqm": float(iqm(known)),
        "members/return_iqm_low": low,
        "members/return_iqm_high": high,
        "members/return_best": float(known.max()),
    }


def _crossed(done: int, length: int, every: int) -> bool:
    """Whether a multiple of `every` lies in the last `length` updates."""
    return (done - length) // every < done // every


def _finite_mean(values: np.ndarray) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite)) if finite else math.nan
