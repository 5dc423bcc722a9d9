"""Interrupts commands as a person does: by signals, in a terminal, at any moment.

`interrupted` runs one command in a pseudo-terminal, sends it signals, and tells how it ended.
`benchmarks.faults` does so at random moments of every phase of a training."""

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

ROOT = Path(__file__).parents[1]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AT_ONCE = 2.0  # seconds
POLL = 0.005
PATIENCE = 120.0  # seconds for a command that should end by itself

# In the new process, because Python code between fork and exec may deadlock where jax has threads.
# Whoever starts this may run under nohup, or in the background.
IN_TERMINAL = """
import fcntl, os, signal, sys, termios
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Interrupted(NamedTuple):
    """How a command ended that was sent signals."""

    signal: int
    phase: str  # the last thing that it had shown
    code: int
    seconds: float  # from the (last) signal to its end
    shown: str  # all that it wrote

    @property
    def ended_well(self) -> bool:
        """With the signal's exit code, and without a traceback. A command that was done when the
        signal came ends with 0."""
        return self.code in (128 + self.signal, 0) and "Traceback" not in self.shown


@contextlib.contextmanager
def in_terminal(
    module: str, arguments: list[str], cwd: Path, columns: int = 120
) -> Iterator[tuple[subprocess.Popen, int]]:
    """`python -m module …` in a terminal of its own: its process, and the terminal's other end,
    which does not block. A process that is still there at the end is killed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.set_blocking(ours, False)
    process = subprocess.Popen(
        [sys.executable, "-c", IN_TERMINAL, "-m", module, *arguments],
        **{"stdin": theirs, "stdout": theirs, "stderr": theirs},
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read(end: int) -> str:
    """What has been written since."""
    try:
        return os.read(end, 1 << 20).decode(errors="replace")
    except OSError:  # nothing yet, or the process has ended
        return ""


class HasPid(Protocol):
    pid: int


def listens(process: HasPid) -> bool:
    """Whether the command's first lines have run: it handles SIGHUP."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
    caught = next((x.split()[1] for x in status.splitlines() if x.startswith("SigCgt")), "0")
    return bool(int(caught, 16) >> (signal.SIGHUP - 1) & 1)


def interrupted(
    module: str,
    arguments: list[str],
    cwd: Path,
    number: int,
    due: Callable[[str, float], bool] = lambda shown, seconds: True,
    twice: float | None = None,
) -> Interrupted:
    """Runs a command and sends it signal `number` as soon as it listens and `due`, which gets what
    was shown and the seconds since it listens. `twice`: seconds until the same signal again."""
    with in_terminal(module, arguments, cwd) as (process, end):
        shown, began = "", None
        while process.poll() is None:
            shown += read(end)
            if began is None and listens(process):
                began = time.monotonic()
            if began is not None and due(shown, time.monotonic() - began):
                break
            time.sleep(POLL)
        phase = phase_of(shown)
        sent = _send(process, number)
        if twice is not None:
            shown += _until(process, end, sent + twice)
            sent = _send(process, number)
        shown += _until(process, end, sent + PATIENCE)
        seconds = time.monotonic() - sent
        shown += read(end)
        return Interrupted(number, phase, process.poll() or 0, seconds, shown)


def _send(process: subprocess.Popen, number: int) -> float:
    """To the foreground, as a terminal does; gives the time."""
    if process.poll() is None:
        os.killpg(process.pid, number)
    return time.monotonic()


def _until(process: subprocess.Popen, end: int, when: float) -> str:
    shown = ""
    while process.poll() is None and time.monotonic() < when:
        shown += read(end)
        time.sleep(POLL)
    return shown


UPDATES = 300
PHASES = {  # by what a training shows, the latest first
    "more: python": "done",
    "replay of": "after the GIF",
    f"{UPDATES}/{UPDATES}": "closing",
    "training": "training",
    "compiling": "compiling",
}


def phase_of(shown: str) -> str:
    return next((phase for word, phase in PHASES.items() if word in shown), "imports")


TRAINING = [
    *("--algorithm", "ippo", "--num-envs", "4", "--rollout-length", "5"),
    *("--total-updates", f"{UPDATES}"),
    *("--log-every", "10", "--eval-every", "100", "--eval-episodes", "4", "--net.hidden", "8"),
    *("--ppo.num-minibatches", "1", "--ppo.epochs", "1", "--devices", "1", "--no-tensorboard"),
]


# The phases of a training, each with the seconds within which it is interrupted.
LENGTHS = {"imports": 2.0, "compiling": 2.0, "training": 0.5, "closing": 0.5, "after the GIF": 0.1}


class Moment:
    """Due some seconds after a phase has begun, or when a later one has."""

    def __init__(self, phase: str, delay: float) -> None:
        self.phase, self.delay = phase, delay
        self._began: float | None = None

    def __call__(self, shown: str, seconds: float) -> bool:
        order = [*LENGTHS, "done"]
        late = order.index(phase_of(shown)) - order.index(self.phase)
        if late >= 0 and self._began is None:
            self._began = seconds
        return late > 0 or (self._began is not None and seconds - self._began >= self.delay)
