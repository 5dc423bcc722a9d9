"""Directories that do not do what they should: full, read-only, linked, with strange names."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults import tiny
from benchmarks.faults.commands import Done, finished, here, in_child, misbehaved
from benchmarks.faults.contents import contents, difference, lost_history, lost_updates
from benchmarks.faults.damage import UPDATES
from benchmarks.faults.trials import REFUSED, Bench, Trial, first
from jmarl.runs.files import CONFIG

FAILED = 1  # exit code
KB = 1024
SIZES = (4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024)
ROOMY = 256 * KB  # kB
NAMES = (
    "a\nb",
    "\n",
    " spaces  at both ends ",
    "-rf",
    "--resume",
    "<b>x<|b>",
    "%s {0} $HOME `id` ;",
    'quote\'d "twice"',
    "ünïcödé 漢字 🙂",
    "tab\tand\x1b[31mescape",
    "." + "x" * 200,
    "~",
)
PATTERNS = ("[bold]x[/bold]", "*?~")  # in which Orbax would not find what it has saved
CASE = tiny.run(UPDATES)


@contextlib.contextmanager
def disk(place: Path, size: int) -> Iterator[None]:
    """A disk of `size` kB, which root can make."""
    place.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(place))
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(f"full and read-only disks need root: {done.stderr.strip()}")


def fill(bench: Bench, kind: str) -> None:
    """Disks that are full at some moment, and have room again for the resume."""
    place = bench.place / kind
    tiny.completed(CASE, place / "whole")
    whole = contents(place / "whole" / tiny.RUN)
    for size in SIZES[:: 10 if bench.quick else 1]:
        with disk(place / "disk", size):
            log = place / f"{size}"
            words = [*CASE.words[:-1], str(place / "disk" / tiny.RUN)]
            done = finished("train", words, log)
            bench.tell(_filled(kind, place / "disk", size, done, whole, log))


def _filled(
    kind: str, place: Path, size: int, done: Done, whole: dict[str, object], log: Path
) -> Trial:
    run = place / tiny.RUN
    lost = lost_updates(run) if run.is_dir() else 0
    wrong = first(misbehaved(done, (0, FAILED, REFUSED)), lost_history(run, whole))
    _mount("-o", f"remount,size={ROOMY}k", str(place))
    if done.code and (run / CONFIG).is_file():
        again = finished("train", ["--resume", str(run)], log)
    else:
        shutil.rmtree(run, ignore_errors=True)
        again = finished("train", [*CASE.words[:-1], str(run)], log)
    found = contents(run)
    found[CONFIG] = whole[CONFIG]  # the directory has another name
    wrong = first(wrong, misbehaved(again), difference(found, whole))
    return Trial(kind, f"a disk of {size} kB", wrong, lost)


def name(bench: Bench, kind: str) -> None:
    """Names, links, and directories that may only be read."""
    place = bench.place / kind
    short = tiny.run(UPDATES // 2)
    tiny.completed(short, place / "half")
    shutil.copytree(place / "half", place / "whole")
    finished("train", [*short.again, "--total-updates", str(UPDATES)], place / "whole")
    in_child(bench, kind, name_each, place / "whole" / tiny.RUN)
    _read_only(bench, kind, place)


def name_each(bench: Bench, kind: str, whole: Path) -> None:
    """Train, evaluate, go on, report."""
    expected = contents(whole)
    for number, given in enumerate(NAMES[:: 6 if bench.quick else 1]):
        folder = bench.place / kind / f"names{number}"
        folder.mkdir()
        os.chdir(folder)
        bench.tell(
            Trial(kind, f"a run directory {given[:30]!r}", _lives_in(f"./{given}", expected))
        )
    for given in PATTERNS:
        done = here("train", *tiny.run(UPDATES).words[:-2], f"--run-dir=./{given}")
        left = "a directory was left behind" if Path(f"./{given}").exists() else ""
        wrong = first(misbehaved(done, (REFUSED,)), left)
        bench.tell(Trial(kind, f"a run directory {given!r}", wrong))
    for what in ("the run's directory", "its parent directory"):
        folder = bench.place / kind / what.replace(" ", "_")
        (folder / "real").mkdir(parents=True)
        os.chdir(folder)
        if what.startswith("its"):
            os.symlink("real", "link")
            wrong = _lives_in("link/x", expected)
        else:
            half = bench.place / kind / "half" / tiny.RUN
            shutil.copytree(half, folder / "real" / "x")
            os.symlink("real/x", "link")
            wrong = _goes_on("link", expected)
        bench.tell(Trial(kind, f"{what} is a symbolic link", wrong))


def _lives_in(run: str, expected: dict[str, object]) -> str:
    words = [*tiny.run(UPDATES // 2).words[:-2], f"--run-dir={run}"]
    return first(misbehaved(here("train", *words)), _goes_on(run, expected))


def _goes_on(run: str, expected: dict[str, object]) -> str:
    wrong = first(
        misbehaved(here("evaluate", run, "--episodes", 4)),
        misbehaved(here("train", "--resume", run, "--total-updates", UPDATES)),
        misbehaved(here("report", run, "--no-replays")),
    )
    found = contents(Path(run))
    return first(wrong, difference(found, expected, (CONFIG,)))


def _read_only(bench: Bench, kind: str, place: Path) -> None:
    """Whoever only reads may do so; whoever writes says that it cannot."""
    real, seen = place / "half" / tiny.RUN, place / "mounted"
    seen.mkdir()
    before = contents(real)
    with disk(seen, ROOMY):
        shutil.copytree(real, seen / tiny.RUN)
        _mount("-o", "remount,ro", str(seen))
        run = str(seen / tiny.RUN)
        for command, words, codes in (
            ("evaluate", [run, "--episodes", "4"], (0,)),
            ("report", [run, "--no-replays", "--no-html", "--svg", str(place / "svg")], (0,)),
            ("report", [run], (FAILED, REFUSED)),
            ("export", [run], (FAILED, REFUSED)),
            ("render", [run], (FAILED, REFUSED)),
            ("train", ["--resume", run, "--total-updates", "30"], (FAILED, REFUSED)),
            ("train", [*CASE.words[:-1], f"{seen}/new"], (FAILED, REFUSED)),
        ):
            done = finished(command, words, place / "log")
            wrong = first(misbehaved(done, codes), difference(contents(seen / tiny.RUN), before))
            bench.tell(Trial(kind, f"{command} on a read-only disk", wrong))
