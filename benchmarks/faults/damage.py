"""Files of runs and checkpoints: deleted, truncated, filled with random bytes, copied from other
runs. All in one process."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults import tiny
from benchmarks.faults.commands import Process, here, in_child, misbehaved
from benchmarks.faults.contents import contents, difference
from benchmarks.faults.trials import REFUSED, Bench, Trial, first
from jmarl.runs.files import (
    CHECKPOINTS,
    CONFIG,
    EVALUATIONS,
    MARL_EVAL,
    METRICS,
    SUMMARY,
    written_checkpoints,
)

UPDATES, KILLED_AFTER = 24, 10
CASE = tiny.run(UPDATES)
# Files that are made of others' content: they miss what these have lost.
DERIVED = {EVALUATIONS: (MARL_EVAL, SUMMARY)}


class Base(NamedTuple):
    """Runs to damage."""

    killed: Path  # between two checkpoints
    ended: Path
    contents: dict[str, Any]  # of the uninterrupted run


def delete(path: Path, chance: random.Random) -> None:
    del chance
    path.unlink()


def truncate(path: Path, chance: random.Random) -> None:
    os.truncate(path, int(path.stat().st_size * chance.uniform(0.1, 0.9)))


def randomise(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(max(path.stat().st_size, 8)))


WAYS: dict[str, Callable[[Path, random.Random], None]] = {
    "deleted": delete,
    "truncated": truncate,
    "filled with random bytes": randomise,
}


def damage(bench: Bench, kind: str) -> None:
    base = made(bench.place / kind)
    in_child(bench, kind, damage_each, base)


def made(place: Path) -> Base:
    """The uninterrupted run, and one that was killed."""
    tiny.completed(CASE, place / "ended")
    process = Process(CASE.command, CASE.words, place / "killed")
    lines = place / "killed" / tiny.RUN / METRICS
    while process.alive() and _lines(lines) < KILLED_AFTER:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    ended = place / "ended" / tiny.RUN
    return Base(lines.parent, ended, contents(ended))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def damage_each(bench: Bench, kind: str, base: Base) -> None:
    chance, names = bench.random(kind), files(base.killed)
    if bench.quick:
        names = names[:: max(1, len(names) // 3)]
    for name in names:
        for way, do in WAYS.items():
            bench.tell(damaged(bench.place / kind / "copy", kind, base, name, way, do, chance))
    for name in (SUMMARY, MARL_EVAL, EVALUATIONS)[: 1 if bench.quick else 3]:
        bench.tell(of_ended(bench.place / kind / "copy", kind, base, name, chance))


def files(run: Path) -> list[str]:
    """A run's own files, and those of its last checkpoint."""
    last = f"update_{max(written_checkpoints(run / CHECKPOINTS))}"
    found = [path.relative_to(run) for path in sorted(run.rglob("*")) if path.is_file()]
    return [str(p) for p in found if p.parts[0] != CHECKPOINTS or p.parts[1] == last]


def damaged(
    copy: Path,
    kind: str,
    base: Base,
    name: str,
    way: str,
    do: Callable[[Path, random.Random], None],
    chance: random.Random,
) -> Trial:
    """Evaluated, reported and resumed with a damaged file."""
    where = _copied(base.killed, copy)
    do(where / name, chance)
    wrong = first(
        misbehaved(here("evaluate", where, "--episodes", 4, "--which", "latest"), (0, REFUSED)),
        misbehaved(
            here("report", where, "--no-replays", "--no-html", "--svg", copy / "svg"), (0, REFUSED)
        ),
    )
    before = contents(where)
    resumed = here("train", "--resume", where)
    wrong = first(wrong, misbehaved(resumed, (0, REFUSED)))
    if not wrong and resumed.code:
        wrong = first(_refused(name), difference(contents(where), before))
    elif not wrong:
        wrong = _went_on(where, base, name)
    return Trial(kind, f"{_general(name)} {way}", wrong)


def _copied(run: Path, copy: Path) -> Path:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy / tiny.RUN)
    os.chdir(copy)
    return Path(tiny.RUN)


def _general(name: str) -> str:
    """Without the parts of a name that change with every run."""
    path = Path(name)
    return f"{path.parent.name}/{path.name[:16]}" if path.parts[0] == CHECKPOINTS else name


def _refused(name: str) -> str:
    """Only a run without its configuration may not go on."""
    only = Path(name).name == CONFIG
    return "" if only else "it does not go on, though only one file is damaged"


def _went_on(where: Path, base: Base, name: str) -> str:
    """All is as in the uninterrupted run, but for what the damage took away."""
    file = Path(name).name if CHECKPOINTS not in Path(name).parts else ""
    apart = (file, *DERIVED.get(file, ()))
    if problem := difference(contents(where), base.contents, apart):
        return problem
    if file not in (METRICS, EVALUATIONS):
        return ""
    lines, whole = contents(where)[file], base.contents[file]
    strange = [line for line in lines if line not in whole]
    later = [line for line in whole if line["update"] > KILLED_AFTER]
    if strange:
        return f"{file} has a line that the uninterrupted run has not"
    return "" if lines[-len(later) :] == later else f"{file} lacks later lines"


def of_ended(copy: Path, kind: str, base: Base, name: str, chance: random.Random) -> Trial:
    """A finished run that has lost one of its last files gets it back."""
    del chance
    where = _copied(base.ended, copy)
    (where / name).unlink()
    resumed = here("train", "--resume", where)
    apart = (name, *DERIVED.get(name, ())) if name == EVALUATIONS else ()
    wrong = first(
        misbehaved(resumed, (0, REFUSED)), difference(contents(where), base.contents, apart)
    )
    return Trial(kind, f"{name} of a finished run deleted", wrong)


def exchange(bench: Bench, kind: str) -> None:
    """Checkpoints of other runs, and under other names."""
    base = made(bench.place / kind)
    other = bench.place / kind / "other"
    tiny.completed(tiny.run(UPDATES, "--seed", "1"), other / "seed")
    tiny.completed(tiny.run(UPDATES, "--net.hidden", "16"), other / "wider")
    tiny.completed(tiny.run(UPDATES, "--seeds", "2"), other / "group")
    again = Process(CASE.command, CASE.words, other / "same")
    again.wait()
    in_child(bench, kind, exchange_each, base, other)


def exchange_each(bench: Bench, kind: str, base: Base, other: Path) -> None:
    for name in ("seed", "wider", "group", "same"):
        for number in (UPDATES, UPDATES - 2):
            given = other / name / tiny.RUN / CHECKPOINTS / f"update_{UPDATES}"
            fault = f"the last checkpoint of {OTHERS[name]}, copied in as update_{number}"
            bench.tell(_exchanged(bench.place / kind / "copy", kind, base, given, number, fault))
    last = max(written_checkpoints(base.killed / CHECKPOINTS))
    for number in (last + 1, UPDATES, UPDATES + 1, 10**6):
        given = base.killed / CHECKPOINTS / f"update_{last}"
        fault = f"its own checkpoint {last} under the name update_{number}"
        bench.tell(_exchanged(bench.place / kind / "copy", kind, base, given, number, fault))


OTHERS = {
    "seed": "a run with another seed",
    "wider": "a run with a wider network",
    "group": "a group of seeds",
    "same": "an equal run",
}


def _exchanged(copy: Path, kind: str, base: Base, given: Path, number: int, fault: str) -> Trial:
    """Refused by name; without it the run goes on."""
    where = _copied(base.killed, copy)
    put = where / CHECKPOINTS / f"update_{number}"
    shutil.copytree(given, put)
    before = contents(where)
    refused = here("train", "--resume", where)
    wrong = first(
        misbehaved(refused, (REFUSED,)),
        "" if put.name in refused.err else f"the refusal does not name {put.name}",
        difference(contents(where), before),
    )
    shutil.rmtree(put, ignore_errors=True)
    resumed = here("train", "--resume", where)
    wrong = first(wrong, misbehaved(resumed), difference(contents(where), base.contents))
    return Trial(kind, fault, wrong)
