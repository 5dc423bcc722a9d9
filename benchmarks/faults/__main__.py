"""Tries every kind of fault on training, sweeps and their files, and counts what survives.

A fault is survived if the command ends with the exit code that is documented, says one sentence
and no traceback, no line up to the last checkpoint is lost, and what goes on comes to the same
files, lines and parameters as an uninterrupted run, bit for bit.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults import (
    caches,
    damage,
    histories,
    interruptions,
    kills,
    places,
    policies,
    values,
)
from benchmarks.faults.soak import soak
from benchmarks.faults.trials import Bench, Kind, Trial
from benchmarks.report import Row, arguments, console, table, write
from jmarl.runs.signals import Interruption

WORKERS = 2
# The longest first, so that the two workers end at the same time.
KINDS: dict[str, Kind] = {
    "signals": interruptions.interrupt,
    "files": damage.damage,
    **{f"{how}-{what}": kills.stop for what in ("halving", "pbt", "seeds") for how in kills.SENT},
    "kill-run": kills.stop,
    "signals-twice": interruptions.interrupt_twice,
    "other-commands": interruptions.interrupt_others,
    "caches": caches.spoil,
    "full-disk": places.fill,
    "names": places.name,
    "exchanged": damage.exchange,
    "histories": histories.live,
    "policies": policies.tamper,
    "values": values.refuse,
}


def main() -> None:
    options = arguments(__doc__, "faults", _more_options)
    began, interruption = time.monotonic(), Interruption()
    with (
        tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder,
        _one_cache(Path(folder)),
        interruption.watched(),
    ):
        interruption.begin()
        if options.soak is not None:
            rows = soak(options.soak, Path(folder) / "soak", lambda: interruption.signal)
            write(options.json.with_stem(f"{options.json.stem}_soak"), rows)
            return
        if not options.only:
            options.json.unlink(missing_ok=True)
        trials = tried(options, Path(folder), interruption)
    for trial in trials:
        if trial.problem:
            told(trial)
    show(earlier_figures(options.json, []).rows)
    survived, minutes = sum(not each.problem for each in trials), (time.monotonic() - began) / 60
    console.print(f"{len(trials)} faults, {survived} survived, {minutes:.1f} minutes")
    if survived < len(trials):
        raise SystemExit(1)


class Figures(NamedTuple):
    rows: list[Row]
    problems: list[dict[str, Any]]


def earlier_figures(path: Path, but: list[str]) -> Figures:
    """Those of the file, without the kinds that were tried again."""
    if not path.exists():
        return Figures([], [])
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = [Row(**row) for row in found["rows"] if row["case"] not in but]
    return Figures(rows, [each for each in found["problems"] if each["kind"] not in but])


def _more_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        nargs="+",
        choices=KINDS,
        metavar="KIND",
        help=f"of {', '.join(KINDS)}; other figures of the file stay",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random moments and bytes")
    parser.add_argument(
        "--soak", type=float, metavar="MINUTES", help="train for so long and watch the memory"
    )


@contextmanager
def _one_cache(place: Path) -> Iterator[None]:
    """All trials compile once. jax reads the variables when a process imports it."""
    variables = {
        "XDG_CACHE_HOME": str(place / "cache"),
        "JAX_COMPILATION_CACHE_DIR": str(place / "cache" / "xla"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def tried(options: argparse.Namespace, place: Path, interruption: Interruption) -> list[Trial]:
    """All trials; two kinds at a time. Figures of a kind are written when it is done."""
    trials: list[Trial] = []

    def tell(trial: Trial) -> None:
        trials.append(trial)
        told(trial)
        if interruption.signal is not None:
            raise SystemExit(128 + interruption.signal)

    def attempt(kind: str) -> None:
        bench = Bench(place, options.quick, options.seed, tell)
        try:
            KINDS[kind](bench, kind)
        except Exception as error:
            tell(Trial(kind, "the kind itself", f"{type(error).__name__}: {str(error)[-300:]}"))
        with storing:
            store(options.json, kind, [trial for trial in trials if trial.kind == kind])

    storing = threading.Lock()
    with ThreadPoolExecutor(WORKERS) as pool:
        running = [pool.submit(attempt, kind) for kind in options.only or KINDS]
        try:
            for one in running:
                one.result()
        finally:
            pool.shutdown(cancel_futures=True)
    return trials


def store(path: Path, kind: str, trials: list[Trial]) -> None:
    earlier = earlier_figures(path, [kind])
    rows = sorted(earlier.rows + rows_of(trials), key=lambda row: list(KINDS).index(row.case))
    failed = [trial._asdict() for trial in trials if trial.problem]
    write(path, rows, problems=earlier.problems + failed)


def told(trial: Trial) -> None:
    outcome = f"NOT SURVIVED: {trial.problem}" if trial.problem else "survived"
    lost = f", {trial.lost} updates lost" if trial.lost else ""
    text = f"{trial.kind}: {trial.fault}: {outcome}{lost}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def rows_of(trials: list[Trial]) -> list[Row]:
    rows = []
    for kind in [kind for kind in KINDS if kind in {trial.kind for trial in trials}]:
        own = [trial for trial in trials if trial.kind == kind]
        values = {
            "tried": len(own),
            "survived": sum(not trial.problem for trial in own),
            "most_updates_lost": max(trial.lost for trial in own),
        }
        rows += [Row(kind, "faults", metric, float(value)) for metric, value in values.items()]
    return rows


def show(rows: list[Row]) -> None:
    kinds = dict.fromkeys(row.case for row in rows)
    found = {(row.case, row.metric): f"{row.value:.0f}" for row in rows}
    metrics = ("tried", "survived", "most_updates_lost")
    lines = [[kind, *(found[kind, metric] for metric in metrics)] for kind in kinds]
    whole = ["all", *(f"{_total(rows, metric):.0f}" for metric in metrics)]
    lines.append(whole)
    table("faults", ["", "tried", "survived", "lost: updates after the last checkpoint"], lines)


def _total(rows: list[Row], metric: str) -> float:
    values = [row.value for row in rows if row.metric == metric]
    return max(values, default=0) if metric == "most_updates_lost" else sum(values)


if __name__ == "__main__":
    main()
