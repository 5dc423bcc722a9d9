"""Signals through a real pseudo-terminal, at moments from the first line of a command to its
last."""

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults import tiny
from benchmarks.faults.commands import Done, Terminal, misbehaved, resumed_to_the_end
from benchmarks.faults.contents import contents, difference, lost_history
from benchmarks.faults.trials import Bench, Trial, first
from benchmarks.interruptions import AT_ONCE, LENGTHS, SIGNALS, TRAINING, Moment, phase_of
from jmarl.runs.files import CONFIG, METRICS

MOMENTS, TWICE, COMMANDS = 35, 10, 15
CASE = tiny.Case("train", [*TRAINING, "--run-dir", tiny.RUN], ["--resume", tiny.RUN], CONFIG)
OTHERS = {
    "evaluate": [tiny.RUN, "--json", "figures.json"],
    "report": [tiny.RUN],
    "render": [tiny.RUN],
    "export": [tiny.RUN],
    "sweep": [*tiny.sweep(60).words[:-1], "swept"],
}


def interrupt(bench: Bench, kind: str) -> None:
    """Once."""
    _at_moments(bench, kind, bench.times(MOMENTS), again=False)


def interrupt_twice(bench: Bench, kind: str) -> None:
    """The second signal comes within half a second."""
    _at_moments(bench, kind, bench.times(TWICE), again=True)


def _at_moments(bench: Bench, kind: str, count: int, again: bool) -> None:
    """As many in each phase, from the first line to the closing GIF."""
    place, chance = bench.place / kind, bench.random(kind)
    with Terminal("jmarl.train", CASE.words, place / "whole") as terminal:
        done = terminal.wait()
    if done.code:
        raise RuntimeError(f"the undisturbed run failed: {done.out}")
    whole = contents(place / "whole" / tiny.RUN)
    for i in range(count):
        phase, length = list(LENGTHS.items())[i % len(LENGTHS)]
        sent = Sent(
            number=SIGNALS[chance.randrange(len(SIGNALS))],
            due=Moment(phase, chance.random() * length),
            second=chance.random() / 2 if again else None,
        )
        bench.tell(_interrupted(kind, place / f"{i}", whole, sent))


class Sent(NamedTuple):
    """A signal, and when it comes: once, or again some seconds later."""

    number: signal.Signals
    due: Callable[[str, float], bool]  # by what was shown, and the seconds since it listens
    second: float | None = None


class Ended(NamedTuple):
    late: bool  # the command was done when the signal came
    trained: bool  # it had trained by then
    seconds: float  # from the signal to the end
    done: Done


def _interrupted(kind: str, place: Path, whole: dict[str, Any], sent: Sent) -> Trial:
    with Terminal("jmarl.train", CASE.words, place) as terminal:
        end = _signalled(terminal, sent, place)
    run, number = place / tiny.RUN, sent.number
    problem = first(_ended_badly(end, number), lost_history(run, whole))
    if not problem and not end.trained and end.seconds > AT_ONCE:
        problem = f"it took {end.seconds:.1f} s to end before it had trained"
    if not problem and sent.second is not None and not _says_what_is_saved(end, number):
        problem = "it does not name the last checkpoint"
    if end.done.code:
        _, stuck = resumed_to_the_end(CASE.command, CASE.next_words(place), place)
        problem = first(problem, stuck)
    twice = "" if sent.second is None else f", again after {sent.second:.2f} s"
    fault = f"{number.name} in the phase {phase_of(end.done.out)!r}{twice}"
    return Trial(kind, fault, first(problem, difference(contents(run), whole)))


def _says_what_is_saved(end: Ended, number: signal.Signals) -> bool:
    """Nobody can say anything in a window that is closed."""
    if end.late or not end.trained or not end.done.code or number == signal.SIGHUP:
        return True
    words = ("last checkpoint", "without a checkpoint", "what was learned is saved")
    return any(word in end.done.out for word in (*words, "interrupted by"))


def _signalled(terminal: Terminal, sent: Sent, place: Path) -> Ended:
    terminal.wait_until(terminal.listens)
    began = time.monotonic()
    terminal.wait_until(lambda: sent.due(terminal.shown, time.monotonic() - began))
    late = not terminal.alive()
    trained = (place / tiny.RUN / METRICS).is_file()
    at = time.monotonic()
    if not late:
        terminal.deliver(sent.number)
    if sent.second is not None:
        terminal.wait_until(lambda: time.monotonic() - at > (sent.second or 0))
        if terminal.alive():
            again = signal.SIGTERM if sent.number == signal.SIGHUP else sent.number
            terminal.deliver(again)
    done = terminal.wait()
    return Ended(late, trained, time.monotonic() - at, done)


def _ended_badly(end: Ended, number: signal.Signals) -> str:
    """A run that is done when the signal comes may end as if there had been none."""
    interrupted = tuple(128 + each for each in {number, signal.SIGTERM})
    over = end.late or "run: " in end.done.out
    return misbehaved(end.done, (*interrupted, 0) if over else interrupted)


def interrupt_others(bench: Bench, kind: str) -> None:
    """Every other command, and a benchmark."""
    place, chance = bench.place / kind, bench.random(kind)
    place.mkdir(parents=True)
    tiny.completed(tiny.run(4), place)
    for i in range(bench.times(COMMANDS)):
        name, words = list(OTHERS.items())[i % len(OTHERS)]
        number, after = SIGNALS[i % len(SIGNALS)], chance.uniform(0, 4)
        due = partial(_has_passed, after)
        with Terminal(f"jmarl.{name}", words, place) as terminal:
            end = _signalled(terminal, Sent(number, due), place / "nowhere")
        problem = _ended_badly(end, number)
        if not problem and not end.late and end.seconds > AT_ONCE and name != "sweep":
            problem = f"it took {end.seconds:.1f} s to end"
        half = [path.name for path in (place / tiny.RUN).iterdir() if path.suffix == ".new"]
        problem = first(problem, f"{half[0]} was left behind" if half else "")
        bench.tell(Trial(kind, f"{name}, {number.name} after {after:.2f} s", problem))


def _has_passed(after: float, shown: str, seconds: float) -> bool:
    del shown
    return seconds >= after
