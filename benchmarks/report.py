"""Shared by all benchmarks: timing, the JSON format, tables, command-line options."""

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import rich.table

from jmarl.config.formatting import command_line
from jmarl.runs.directory import own_commit
from jmarl.runs.terminal import make_console

RESULTS = Path(__file__).parent / "results"
WIDTH = None if sys.stdout.isatty() else 140  # files have no width limit
console = make_console(sys.stdout, width=WIDTH)


class Row(NamedTuple):
    """One figure."""

    case: str
    subject: str
    metric: str
    value: float


class Compiled(NamedTuple):
    run: Callable[[], Any]
    compile_s: float


def compile_program(function: Callable[..., Any], *args: Any) -> Compiled:
    """Trace, lower and compile; returns the time of all three and a function that runs the
    program."""
    start = time.perf_counter()
    program = jax.jit(function).lower(*args).compile()
    compile_s = time.perf_counter() - start
    return Compiled(lambda: program(*args), compile_s)


def seconds(run: Callable[[], Any]) -> float:
    """Wall-clock time until every output is ready."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def interleaved(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Times of each subject, measured in turns so that a busy machine disturbs all equally.

    A first round warms up and is not recorded."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            elapsed = seconds(run)
            if turn:
                times[name].append(elapsed)
    return times


def arguments(
    description: str | None,
    name: str,
    further: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> argparse.Namespace:
    """Parse --quick and --json, which every benchmark has; `further` adds more options."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument(
        "--quick", action="store_true", help="fewer sizes; takes at most two minutes"
    )
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help="the file to write the figures to"
    )
    further(parser)
    options = parser.parse_args()
    if options.json is None:
        options.json = RESULTS / (f"{name}_quick.json" if options.quick else f"{name}.json")
    if not os.access(options.json.parent, os.W_OK) and options.json.parent.exists():
        parser.error(f"--json: cannot write into {options.json.parent}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    return options


def meta() -> dict[str, Any]:
    """The machine and package versions of a measurement."""
    packages = ("jax", "jaxlib", "jaxmarl", "mpe2", "numpy")
    return {
        "commit": own_commit(),
        "command": command_line("python", "-m", f"benchmarks.{_called()}", *sys.argv[1:]),
        "versions": {"python": platform.python_version()}
        | {package: importlib.metadata.version(package) for package in packages},
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "backend": jax.default_backend(),
    }


def _called() -> str:
    """The benchmark's name: of its module, or of the package that is run."""
    script = Path(sys.argv[0])
    return script.parent.name if script.stem == "__main__" else script.stem


def write(path: Path, rows: list[Row], **further: Any) -> None:
    save(path, rows, **further)
    console.print(f"figures: {path}")


def save(path: Path, rows: list[Row], **further: Any) -> None:
    """Whole or not at all, so that whoever stops a benchmark keeps what it has measured."""
    figures = {"rows": [row._asdict() for row in rows], "meta": meta(), **further}
    beside = path.with_suffix(".partial")
    beside.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    beside.replace(path)


def stored(path: Path) -> list[Row]:
    """The figures of a file; none if there is no such file."""
    if not path.is_file():
        return []
    return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def others(path: Path, cases: Sequence[str]) -> list[Row]:
    """The figures of the file that are not of these cases."""
    return [row for row in stored(path) if row.case.partition("/")[0] not in cases]


def table(title: str, columns: list[str], lines: list[list[str]]) -> None:
    shown = rich.table.Table(title=title)
    for i, column in enumerate(columns):
        shown.add_column(column, justify="right" if i else "left")
    for line in lines:
        shown.add_row(*line)
    console.print(shown)
