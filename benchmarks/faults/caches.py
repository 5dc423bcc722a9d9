"""The cache of compiled programs: shared by two processes, full, damaged."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.faults import tiny
from benchmarks.faults.commands import PATIENCE, ROOT, Done, misbehaved
from benchmarks.faults.contents import contents, difference
from benchmarks.faults.places import disk
from benchmarks.faults.trials import Bench, Trial, first

CASE = tiny.run(6)
PAIRS, ENTRIES = 3, 8
FULL = 64  # kB


def begun(place: Path, cache: Path) -> subprocess.Popen[str]:
    place.mkdir(parents=True)
    apart = {"JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"}
    env = {name: value for name, value in os.environ.items() if name not in apart}
    env |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache)}
    words = [sys.executable, "-m", "jmarl.train", *CASE.words]
    piped = subprocess.PIPE
    return subprocess.Popen(words, cwd=place, env=env, stdout=piped, stderr=piped, encoding="utf-8")


def ended(process: subprocess.Popen[str]) -> Done:
    out, err = process.communicate(timeout=PATIENCE)
    return Done(process.returncode, out, err)


def spoil(bench: Bench, kind: str) -> None:
    place, chance, caches = bench.place / kind, bench.random(kind), []
    ended(begun(place / "whole", place / "whole_cache"))
    whole = contents(place / "whole" / tiny.RUN)
    for number in range(bench.times(PAIRS)):
        caches.append(place / f"shared{number}")
        both = [begun(place / f"pair{number}_{i}", caches[-1]) for i in range(2)]
        for i, process in enumerate(both):
            wrong = _wrong(ended(process), place / f"pair{number}_{i}", whole)
            bench.tell(Trial(kind, "two processes fill one cache at once", wrong))
    for number in range(bench.times(ENTRIES)):
        entries = [path for path in sorted(caches[0].rglob("*")) if path.is_file()]
        fault, do = DAMAGES[number % len(DAMAGES)]
        for entry in entries:
            do(entry, chance)
        wrong = _wrong(
            ended(begun(place / f"spoilt{number}", caches[0])), place / f"spoilt{number}", whole
        )
        bench.tell(Trial(kind, f"all entries of the cache are {fault}", wrong))
    with disk(place / "full", FULL):
        wrong = _wrong(ended(begun(place / "on_full", place / "full")), place / "on_full", whole)
        bench.tell(Trial(kind, f"a cache on a disk of {FULL} kB", wrong))
    (place / "file").touch()
    wrong = _wrong(ended(begun(place / "no_dir", place / "file")), place / "no_dir", whole)
    bench.tell(Trial(kind, "a file in place of the cache's directory", wrong))


def _wrong(done: Done, place: Path, whole: dict[str, object]) -> str:
    return first(misbehaved(done), difference(contents(place / tiny.RUN), whole))


def _emptied(entry: Path, chance: random.Random) -> None:
    del chance
    os.truncate(entry, 0)


def _truncated(entry: Path, chance: random.Random) -> None:
    os.truncate(entry, int(entry.stat().st_size * chance.random()))


def _randomised(entry: Path, chance: random.Random) -> None:
    entry.write_bytes(chance.randbytes(entry.stat().st_size))


def _replaced(entry: Path, chance: random.Random) -> None:
    del chance
    entry.unlink()
    entry.mkdir()


DAMAGES: tuple[tuple[str, Callable[[Path, random.Random], None]], ...] = (
    ("truncated", _truncated),
    ("filled with random bytes", _randomised),
    ("empty", _emptied),
    ("directories", _replaced),
)
