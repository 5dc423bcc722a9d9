"""Commands of jmarl, as processes that can be killed, in a terminal, and in this process."""

import contextlib
import importlib
import io
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults.trials import Bench, Trial, first
from benchmarks.interruptions import POLL, in_terminal, listens, read

ROOT = Path(__file__).parents[2]
MEMORY = 8 * 2**30  # what is not refused shall not take the machine with it
PATIENCE = 900  # seconds until a process is said to hang
# Imported once: a process that trains is forked from one that has done so.
PRELOADED = [
    *(f"jmarl.commands.{name}" for name in ("train", "sweep", "evaluate", "report", "render")),
    *("jmarl.runs.single", "jmarl.runs.checkpoint", "jmarl.replays.best_gif", "jmarl.sweeps.run"),
    *("jmarl.sweeps.results", "jmarl.evaluation.trained_policy", "jmarl.sweeps.plan"),
]


class Done(NamedTuple):
    """What a command said at its end."""

    code: int
    out: str
    err: str


def context() -> Any:
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(PRELOADED)
    return made


class Process:
    """A command in a process of its own, in the directory `place`."""

    def __init__(self, command: str, words: list[str], place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self._logs = place / "stdout.txt", place / "stderr.txt"
        given = (command, words, place, *self._logs)
        self._process = context().Process(target=_run, args=given)
        self.began = time.monotonic()
        self._process.start()
        self.pid = self._process.pid

    def alive(self) -> bool:
        return self._process.is_alive()

    def age(self) -> float:
        """In seconds."""
        return time.monotonic() - self.began

    def listens(self) -> bool:
        return listens(self)

    def send(self, number: signal.Signals) -> None:
        """If it is still there."""
        if self.alive():
            os.kill(self.pid, number)

    def wait(self) -> Done:
        self._process.join(PATIENCE)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        out, err = (path.read_text(encoding="utf-8", errors="replace") for path in self._logs)
        code = self._process.exitcode
        assert code is not None
        return Done(code, out, err)


def finished(command: str, words: list[str], place: Path) -> Done:
    return Process(command, words, place).wait()


def _run(command: str, words: list[str], place: Path, out: Path, err: Path) -> None:
    """What `python -m jmarl.COMMAND` does."""
    from jmarl.runs.signals import end_on_signals

    _write_into(out, err)
    os.chdir(place)
    end_on_signals()
    sys.argv = [command, *words]
    importlib.import_module(f"jmarl.commands.{command}").main()


def _write_into(*logs: Path) -> None:
    for stream, path in enumerate(logs, start=1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, stream)
        os.close(file)


def here(command: str, *words: Any) -> Done:
    """A command in this process."""
    module = importlib.import_module(f"jmarl.commands.{command}")
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = [command, *map(str, words)]
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            module.main()
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:
            sys.argv = before
    return Done(code, out.getvalue(), err.getvalue())


def misbehaved(done: Done, codes: tuple[int, ...] = (0,), sentences: int = 1) -> str:
    """What is wrong with the end of a command: its exit code, a traceback, or many words."""
    lines = [line for line in done.err.splitlines() if line.strip()]
    last = f" ({lines[-1][:200]})" if lines else ""
    if "Traceback" in done.err + done.out:
        return f"it printed a traceback{last}"
    if done.code not in codes:
        return f"exit code {done.code}, not {' or '.join(map(str, codes))}{last}"
    return f"{len(lines)} lines on stderr{last}" if len(lines) > sentences else ""


def in_child(bench: Bench, kind: str, work: Callable[..., None], *given: Any) -> None:
    """`work(bench, kind, *given)` in one process, where jax is imported and compiles once."""
    place = bench.place / kind
    place.mkdir(parents=True, exist_ok=True)
    told, log = place / "trials.jsonl", place / "log.txt"
    told.touch()
    about = (bench.place, bench.quick, bench.seed)
    process = context().Process(target=_work, args=(about, kind, work, given, told, log))
    process.start()
    try:
        with told.open(encoding="utf-8") as lines:
            while process.is_alive():
                _tell_lines(bench, lines)
                time.sleep(0.2)
            _tell_lines(bench, lines)
    finally:
        process.kill()
        process.join()
    said = Done(process.exitcode or 0, "", log.read_text(encoding="utf-8", errors="replace"))
    if problem := misbehaved(said, sentences=0):
        bench.tell(Trial(kind, "all of them in one process", problem))


def _tell_lines(bench: Bench, lines: Iterator[str]) -> None:
    for line in lines:
        bench.tell(Trial(**json.loads(line)))


def _work(
    about: Any, kind: str, work: Callable[..., None], given: Any, told: Path, log: Path
) -> None:
    _write_into(log, log)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.chdir(told.parent)
    with told.open("a", encoding="utf-8", buffering=1) as file:
        write = lambda trial: print(json.dumps(trial._asdict()), file=file)  # noqa: E731
        work(Bench(*about, tell=write), kind, *given)


class Terminal:
    """`python -m MODULE WORDS` on a pseudo-terminal of its own; `with` ends it at last."""

    def __init__(self, module: str, words: list[str], place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self._given, self.shown = (module, words, place), ""

    def __enter__(self) -> "Terminal":
        self._stack = contextlib.ExitStack()
        self._process, self._end = self._stack.enter_context(in_terminal(*self._given))
        return self

    def __exit__(self, *fault: object) -> None:
        self._stack.close()

    def alive(self) -> bool:
        return self._process.poll() is None

    def listens(self) -> bool:
        return listens(self._process)

    def wait_until(self, reached: Callable[[], bool]) -> None:
        while self.alive() and not reached():
            self.shown += read(self._end)
            time.sleep(POLL)

    def deliver(self, number: int) -> None:
        """As a person does: Ctrl-C, `kill`, or a window that is closed."""
        if number == signal.SIGINT:
            os.write(self._end, b"\x03")
        elif number == signal.SIGHUP:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, self._end)
            os.close(nowhere)
        else:
            self._process.send_signal(number)

    def wait(self) -> Done:
        """What was shown counts as standard output: a terminal has one screen."""
        began = time.monotonic()
        self.wait_until(lambda: time.monotonic() - began > PATIENCE)
        self._process.kill()
        self._process.wait()
        return Done(self._process.returncode, self.shown + read(self._end), "")


def resumed_to_the_end(command: str, words: list[str], place: Path) -> tuple[Done, str]:
    """The command goes on; one that was done already says so."""
    done = finished(command, words, place)
    ended = done.code == 2 and "has done its" in done.err
    return done, first("" if ended else misbehaved(done))
