"""kill -9 and signals at random moments, again and again, until the command has come to its end."""

import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults import tiny
from benchmarks.faults.commands import Done, Process, misbehaved, resumed_to_the_end
from benchmarks.faults.contents import (
    SLACK,
    contents,
    difference,
    lost_history,
    lost_updates,
    too_many_checkpoints,
)
from benchmarks.faults.trials import Bench, Trial, first
from benchmarks.interruptions import SIGNALS
from jmarl.runs.files import METRICS

TIMES = 20  # of every kind
CASES = {
    "run": tiny.run(60),
    "seeds": tiny.run(40, "--seeds", "2"),
    "halving": tiny.sweep(30, "--halving", "--rungs", "2"),
    "pbt": tiny.sweep(30, "--pbt"),
}
EXIT = {number: 128 + number for number in SIGNALS} | {signal.SIGKILL: -signal.SIGKILL}
SENT = {"kill": (signal.SIGKILL,), "signal": SIGNALS}


class Whole(NamedTuple):
    """What an uninterrupted run left, and when it trained, in seconds after its start."""

    contents: dict[str, Any]
    first_line: float
    end: float


def stop(bench: Bench, kind: str) -> None:
    """`kind`: `kill-run`, `signal-seeds` and the like."""
    how, _, what = kind.partition("-")
    case, place, chance = CASES[what], bench.place / kind, bench.random(kind)
    whole = uninterrupted(case, place / "whole")
    left, chain = bench.times(TIMES), 0
    while left:
        numbers = [chance.choice(SENT[how]) for _ in range(left)]
        trials = stopped_until_done(kind, case, place / f"{chain}", whole, numbers, chance)
        for trial in trials:
            bench.tell(trial)
        left, chain = left - len(trials), chain + 1


def uninterrupted(case: tiny.Case, place: Path) -> Whole:
    tiny.completed(case, place)  # fills the cache of compiled programs
    shutil.rmtree(place)
    process = Process(case.command, case.words, place)
    while process.alive() and not any((place / tiny.RUN).rglob(METRICS)):
        time.sleep(0.01)
    began = time.monotonic() - process.began
    process.wait()
    return Whole(contents(place / tiny.RUN), began, time.monotonic() - process.began)


def stopped_until_done(
    kind: str,
    case: tiny.Case,
    place: Path,
    whole: Whole,
    numbers: list[signal.Signals],
    chance: random.Random,
) -> list[Trial]:
    """The last trials of a chain whose end is not as it should be have a problem all."""
    trials: list[Trial] = []
    for number in numbers:
        start = whole.first_line if chance.random() < 0.7 else 0.0
        moment = chance.uniform(start, whole.end)
        process = Process(case.command, case.next_words(place), place)
        while process.alive() and not (process.listens() and process.age() > moment):
            time.sleep(0.005)
        process.send(number)
        done = process.wait()
        if done.code != EXIT[number]:
            ended = done.code == 2 and "has done its" in done.err
            problem = "" if ended else misbehaved(done)
            return _judged(trials, problem, place, whole)
        fault = f"{number.name} after {moment:.2f} s"
        trials.append(_after(kind, fault, place, whole, done))
        if not (place / tiny.RUN / case.marker).is_file():
            shutil.rmtree(place / tiny.RUN, ignore_errors=True)  # a name without anything in it
    _, problem = resumed_to_the_end(case.command, case.next_words(place), place)
    return _judged(trials, problem, place, whole)


def _after(kind: str, fault: str, place: Path, whole: Whole, done: Done) -> Trial:
    """What it left behind: whoever says that all is saved has saved it."""
    run = place / tiny.RUN
    lost = lost_updates(run) if run.is_dir() else 0
    most = 0 if "what was learned is saved" in done.out else tiny.EVERY * (1 + SLACK)
    far = f"{lost} updates after the last checkpoint are lost" if lost > most else ""
    wrong = first(misbehaved(done, (done.code,), 2), lost_history(run, whole.contents), far)
    return Trial(kind, fault, wrong, lost)


def _judged(trials: list[Trial], problem: str, place: Path, whole: Whole) -> list[Trial]:
    """With what is wrong with the end of the chain, which each of its trials may have caused."""
    run = place / tiny.RUN
    wrong = first(
        problem,
        difference(contents(run), whole.contents),
        too_many_checkpoints(run, tiny.KEPT),
    )
    return [each._replace(problem=first(each.problem, wrong)) for each in trials]
