"""The training loop: runs chunks of compiled updates, and evaluates, logs and saves between them.
The population is one run, or many members."""

import time
import warnings
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.config.train_config import Config
from jmarl.errors import AllFailedError, RunError
from jmarl.execution import multihost
from jmarl.execution.members import NO_SCORE, Best, Policies, Snapshot
from jmarl.execution.population import Population
from jmarl.learning.episodes import Episodes, episode_figures, named_teams
from jmarl.runs.cadence import next_checkpoint, next_evaluation, next_multiple
from jmarl.runs.callbacks import Callbacks
from jmarl.runs.history import Entry, History
from jmarl.runs.overall import overall, score_of, spread
from jmarl.runs.progress import Screen
from jmarl.runs.signals import Interruption
from jmarl.runs.spans import Span
from jmarl.runs.watchdog import SECONDS, Watchdog
from jmarl.types import TrainState

ABSOLUTE = 10  # times the episodes of an evaluation, for the best parameters at the end


class ResumePoint(NamedTuple):
    """Where training resumes."""

    states: TrainState | None = None  # [A, …]; None: training begins
    active: np.ndarray | None = None  # whose states these are
    update: int = 0
    seconds: float = 0.0  # of training so far
    best: Best | None = None
    failed: dict[int, str] = {}  # noqa: RUF012 (never changed)
    complete: bool = False  # the run ended there, and all its final files exist
    span: dict[str, Any] | None = None  # metrics since the last line
    run: str | None = None  # the id of the run, as its checkpoint says


class Logger(Protocol):
    """Receives metrics, evaluations and states. `entries`: one for each member in training."""

    def metrics(self, entries: list[Entry], overall: Entry) -> None: ...
    def evaluation(self, entries: list[Entry], overall: Entry) -> None: ...
    def save(self, update: int, snapshot: Snapshot, score: float, about: Entry) -> None: ...
    def last_saved(self) -> int | None: ...
    def wait(self) -> None: ...


class Selection(Protocol):
    """Which members train on, and from what: decided between chunks of updates."""

    def next(self, done: int) -> int | None:
        """The update after which it is due."""
        ...

    def apply(self, population: Population, scores: np.ndarray, update: int) -> list[int]:
        """`scores` `[A]` of the members in training; NaN where one has failed. Gives the members
        that go on from what another one has learned."""
        ...


class LoopResult(NamedTuple):
    state: TrainState  # of several members: [A, …]
    update: int  # updates done, from the very beginning
    seconds: float  # of training, likewise
    evaluations: list[Entry]  # each member's first, last and final one
    stopped_by: int | None  # the signal that cut the run short
    failed: dict[int, str]  # member → the metric that was not finite


class Runner:
    """Trains a population to the end of its budget."""

    def __init__(
        self,
        config: Config,
        population: Population,
        start: ResumePoint,
        recorder: Logger,
        screen: Screen,
        selection: Selection | None = None,
        assess: bool = True,
        callbacks: Callbacks | None = None,
    ) -> None:
        """`assess`: score the best parameters at the end once more, over many episodes."""
        self.config, self.population, self.start = config, population, start
        self.recorder, self.screen = recorder, screen
        self.selection, self.assess = selection, assess
        self.callbacks = callbacks or Callbacks()
        self.failed = dict(start.failed)  # member → the metric that was not finite
        self.history = History()
        self.seconds = start.seconds  # of training so far

    def run(self, interruption: Interruption) -> LoopResult:
        """To the end of the budget, of the chunk in which a signal came, or of that after which a
        callback or the target return ends training."""
        config, start = self.config, self.start
        compiled = self._prepare()
        done, steps, began = start.update, 0, time.perf_counter()
        self.span = Span(config.on_nonfinite == "skip", start.span)
        interruption.begin()
        stopped = multihost.anywhere(interruption.signal)
        while not self._ends(done) and stopped is None:
            length = self._chunk(done)
            self._train(done, length)
            done += length
            elapsed = time.perf_counter() - began
            self.seconds = start.seconds + elapsed
            steps += length * config.steps_per_update * len(self.population.active)
            logs = next_multiple(done - length, config.log_every) == done
            if logs or self._selects(done, length) or self._ends(done):
                self._log_metrics(done, {"charts/SPS": steps / elapsed} | compiled)
                compiled = {}  # only the first line tells it
            stopped = multihost.anywhere(interruption.signal)
            self._evaluate_and_save(done, length, at_end=stopped is not None)
        return self._finish(done, stopped)

    def _prepare(self) -> Entry:
        """Compile, and place the states on the devices. Gives the seconds of compilation."""
        population, start = self.population, self.start
        self.screen.note(f"devices: {len(population.devices)} ({jax.default_backend()})")
        compiling = time.perf_counter()
        population.compile()
        compiled = {"charts/compile_s": time.perf_counter() - compiling}
        if start.states is None:
            population.init()
        else:
            assert start.active is not None
            population.restore(start.states, start.active, start.best)
        return compiled

    def _train(self, done: int, length: int) -> None:
        """Train for a chunk of updates. Before the first one, evaluate the initial parameters."""
        population, untrained = self.population, None
        if not done:  # copied, because a step donates its state's buffers
            untrained = jax.block_until_ready(_copied(population.parameters()))
        with Watchdog(self._warn_of_stall) as watchdog:
            running = population.advance(length, watchdog.alive)
            if untrained is not None:  # while the first updates run
                self._evaluate(0, untrained)
            metrics = population.read(running)
        if self.config.on_nonfinite != "skip":
            self._look_for_failures(done, metrics)
        self.span.add(metrics)

    def _evaluate_and_save(self, done: int, length: int, at_end: bool) -> None:
        """Evaluate, select and save, as far as each is due after the last `length` updates.
        `at_end`: a signal stops training here."""
        config, population, before, scores = self.config, self.population, done - length, None
        selects, ends = self._selects(done, length), self._ends(done)
        if selects or ends or next_evaluation(config, before) == done:
            scores = self._evaluate(done, population.parameters())
            ends = self._ends(done)  # perhaps because of what the evaluation has shown
            if selects and not ends:
                self._select(scores, done)
        best = population.best
        improved = scores is not None and best is not None and done in best.update
        if at_end or ends or improved or selects or next_checkpoint(config, before) == done:
            self._save(done, scores)

    def _ends(self, done: int) -> bool:
        """Whether training ends here. A callback that stops it does so in every process."""
        best = self.population.best
        reached = reached_target(self.config, best, self.population.active, self.failed)
        return done == self.config.num_updates or reached or self.callbacks.stop

    def _selects(self, done: int, length: int) -> bool:
        """Whether a selection is due after the last `length` updates."""
        return self.selection is not None and self.selection.next(done - length) == done

    def _select(self, scores: np.ndarray, done: int) -> None:
        assert self.selection is not None
        for member in self.selection.apply(self.population, scores, done):
            self.failed.pop(member, None)

    def _finish(self, done: int, stopped: int | None) -> LoopResult:
        population = self.population
        if stopped is None and done == self.start.update:  # it was killed after its last update
            self._evaluate(done, population.parameters())
        if stopped is None and self.assess:
            self._assess_best(done)
        state = population.batches[0] if population.alone else population.states()
        ends = self.history.evaluations
        return LoopResult(state, done, self.seconds, ends, stopped, self.failed)

    def _chunk(self, done: int) -> int:
        """Updates until something is due: a line, an evaluation, a checkpoint, a selection or the
        end. Training is a loop over one compiled update, so chunks may have any lengths."""
        config = self.config
        ends = [next_multiple(done, config.log_every), config.num_updates]
        ends += [next_evaluation(config, done), next_checkpoint(config, done)]
        selection = None if self.selection is None else self.selection.next(done)
        return min(end for end in (*ends, selection) if end is not None) - done

    def _about(self, member: Any, update: int) -> Entry:
        """What every line of a member says. One that has failed is still evaluated, but its returns
        mean nothing: NaN logits choose action 0."""
        about: Entry = {"update": update, "steps": update * self.config.steps_per_update}
        if self.population.alone:
            return about
        failed = self.failed.get(int(member))
        return {"member": int(member)} | about | ({"failed": failed} if failed else {})

    def _look_for_failures(self, before: int, updates: dict[str, np.ndarray]) -> None:
        """A run that trains alone stops. Of several members, one that fails counts no more, and
        training stops when all have failed."""
        population = self.population
        for name, values in updates.items():
            if not name.startswith("losses/") or name.split("/")[1] == "explained_variance":
                continue  # which may be undefined: returns can all be equal
            for i, member in enumerate(population.active):
                broken = np.flatnonzero(~np.isfinite(values[:, i]))
                if broken.size and int(member) not in self.failed:
                    at = before + 1 + int(broken[0])
                    self._fail(int(member), f"update {at}: {name} is {values[broken[0], i]}")
        if set(map(int, population.active)) <= self.failed.keys():
            ended = before + len(next(iter(updates.values())))
            why = self._nonfinite(self.failed[int(population.active[0])])
            raise AllFailedError(str(why), self.failed, ended)

    def _fail(self, member: int, what: str) -> None:
        self.failed[member] = what
        if not self.population.alone:
            self.screen.note(f"member {member} failed at {what}")

    def _nonfinite(self, what: str) -> RunError:
        saved = self.recorder.last_saved()
        last = "no checkpoint yet" if saved is None else f"the last good checkpoint: update {saved}"
        return RunError(
            f"{what} ({last}). A smaller --ppo.lr or --ppo.max-grad-norm may help; "
            "--on-nonfinite skip leaves such updates out."
        )

    def _log_metrics(self, done: int, timed: Entry) -> None:
        """Means over the updates since the last line."""
        timed = {"seconds": self.seconds} | timed
        pairs = zip(self.population.active, self.span.means(), strict=True)
        entries = [self._about(member, done) | means | timed for member, means in pairs]
        line = overall(entries)
        self.recorder.metrics(entries, line)
        self.screen.show(line)
        self.callbacks.metrics(line, entries)

    def _evaluate(self, update: int, parameters: list[Policies]) -> np.ndarray:
        """Greedy and sampled, on the same initial states every time. Gives the scores `[A]`."""
        population, spec = self.population, self.population.trainer.env.spec
        seconds = {"seconds": self.seconds if update else 0.0} | named_teams(spec)
        entries = [self._about(member, update) | seconds for member in population.active]
        for prefix, greedy in (("eval", True), ("eval_sampled", False)):
            seen = population.play(parameters, greedy)
            for i, entry in enumerate(entries):
                entry |= episode_figures(spec, jax.tree.map(lambda x, i=i: x[i], seen), prefix)
        scores = np.array([score_of(spec, entry, update) for entry in entries])
        scores[[int(m) in self.failed for m in population.active]] = np.nan
        if update:
            population.keep_best(scores, update, parameters)
        line = overall(entries)
        if not population.alone:
            line |= spread(spec, entries)
        self._tell_evaluation(entries, line)
        self.screen.show(line)
        return scores

    def _tell_evaluation(self, entries: list[Entry], line: Entry) -> None:
        self.history.add_evaluation(entries)
        self.recorder.evaluation(entries, line)
        self.callbacks.evaluation(line, entries)

    def _save(self, update: int, scores: np.ndarray | None) -> None:
        score = NO_SCORE if scores is None else float(np.nan_to_num(scores, nan=NO_SCORE).max())
        about: Entry = {"update": update, "seconds": self.seconds, "failed": self.failed}
        about |= {"span": self.span.stored()}
        snapshot, further = self.population.snapshot()
        self.recorder.save(update, snapshot, score, about | further)
        if self.callbacks.each:  # which may read it
            self.recorder.wait()
            self.callbacks.checkpoint(update)

    def _warn_of_stall(self) -> None:
        """XLA aborts the process when devices wait too long for each other (see `cpu_devices`)."""
        saved, last = self.recorder.last_saved(), "there is no checkpoint yet"
        if saved is not None:
            last = f"--resume then goes on after update {saved}, the last checkpoint"
        warnings.warn(
            f"no update has finished for {SECONDS // 60} minutes. If devices have lost each other, "
            f"the process will be aborted; {last}.",
            stacklevel=1,
        )

    def _assess_best(self, update: int) -> None:
        """The absolute metric: the best parameters over ten times the episodes."""
        population, best = self.population, self.population.best
        if best is None:
            return
        parameters = population.best_parameters()
        rounds = [population.play(parameters, greedy=True, fold=i) for i in range(1, ABSOLUTE + 1)]
        seen = Episodes(*jax.tree.map(lambda *x: np.concatenate(x, axis=1), *rounds))
        entries, spec = [], population.trainer.env.spec
        for i, member in enumerate(population.active):
            about: Entry = {"seconds": self.seconds, "absolute": True} | named_teams(spec)
            about["best_update"] = int(best.update[member])
            own = jax.tree.map(lambda x, i=i: x[i], seen)
            scored = episode_figures(spec, own, "absolute")
            entries.append(self._about(member, update) | about | scored)
        self._tell_evaluation(entries, overall(entries))


def reached_target(
    config: Config, best: Best | None, active: np.ndarray | None, failed: dict[int, str]
) -> bool:
    """Whether every member in training that has not failed has had the return at which training
    stops."""
    if config.stop_at_return is None or best is None or active is None:
        return False
    scores = [best.score[member] for member in active if int(member) not in failed]
    return bool(scores) and float(min(scores)) >= config.stop_at_return


def has_ended(config: Config, start: ResumePoint) -> bool:
    """Whether nothing is left to train where a run resumes."""
    reached = reached_target(config, start.best, start.active, start.failed)
    return start.update == config.num_updates or (start.update > 0 and reached)


@jax.jit
def _copied(tree: Any) -> Any:
    return jax.tree.map(jnp.copy, tree)
