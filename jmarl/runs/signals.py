"""SIGINT, SIGTERM and SIGHUP: they end a command at once, and training when it is safe."""

import atexit
import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL = 0.05  # seconds between looks at a run that holds a signal back
SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it

_holding: "Interruption | None" = None  # who holds signals back
_ends_on_signals = False


def end_on_signals() -> None:
    """From now on the first signal ends the process, unless an `Interruption` holds it back.

    A thread waits for signals: Python runs handlers only between bytecodes of the main thread,
    which may compile for minutes, and XLA's callbacks may swallow an exception raised there."""
    global _ends_on_signals
    heard, written = os.pipe()
    os.set_blocking(written, False)
    _install()
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    threading.Thread(target=_wait_for_signals, args=(heard,), daemon=True).start()
    atexit.register(_ignore)
    _ends_on_signals = True


def _install() -> None:
    """Handlers that do nothing: the signal's number goes to the pipe."""
    for number in WATCHED:
        if signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` leaves SIGHUP
            signal.signal(number, lambda *_: None)


def _ignore() -> None:
    """At the very end, when all is done: Python takes its handlers away before it ends."""
    for number in WATCHED:
        signal.signal(number, signal.SIG_IGN)


def _wait_for_signals(heard: int) -> None:
    while True:
        holder = _holding
        holds = holder is not None and holder.signal is not None
        ready, _, _ = select.select([heard], [], [], POLL if holds else None)
        for number in os.read(heard, 16) if ready else b"":
            holder = _holding
            if number in WATCHED and (holder is None or not holder.hold(number)):
                _end(number, "" if holder is None else holder.parting_words())
        if holder is not None and holder.signal is not None and holder.over():
            _end(holder.signal, holder.parting_words())


def _end(number: int, words: str) -> None:
    """Without clean-up: the main thread may be anywhere. Files are replaced as a whole."""
    with contextlib.suppress(OSError):  # a terminal that is closed
        if os.isatty(1):
            os.write(1, SHOW_CURSOR)
        name = signal.Signals(number).name
        os.write(2, f"\ninterrupted by {name}{words}.\n".encode())
    os._exit(128 + number)


class Interruption:
    """Remembers the first signal, so that training ends after the updates that are running. The
    second SIGINT or SIGTERM is not held back, nor is any once the last checkpoint of the run is on
    disk: what is missing then, a resume completes. A second SIGHUP is ignored, because a terminal
    that closes may send several; under `nohup` all of them are."""

    signal: int | None = None
    _training = False

    def __init__(
        self, last_saved: Callable[[], int | None] = lambda: None, last: int | None = None
    ) -> None:
        """`last_saved`: the update of the last checkpoint, to be named in the parting words.
        `last`: the last update of the run."""
        self._last_saved, self._last = last_saved, last

    def begin(self) -> None:
        """From now on there is something to lose: signals are held back."""
        self._training = True

    def hold(self, number: int) -> bool:
        """Whether a signal is held back."""
        if not self._training or self.over():
            return False
        if self.signal is None:
            self.signal = number
            return True
        return number == signal.SIGHUP

    def over(self) -> bool:
        """Whether all of the training is on disk."""
        saved = self._last_saved() if self._training else None
        return saved is not None and self._last is not None and saved >= self._last

    def parting_words(self) -> str:
        if not self._training:
            return " before training began"
        saved = self._last_saved()
        if saved is None:
            return ", without a checkpoint"
        return f"; the last checkpoint is of update {saved}"

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Within it, signals are this object's: of a command by `end_on_signals`, else by handlers
        of its own. Other threads than the main one may not watch."""
        global _holding
        if _ends_on_signals:
            if threading.current_thread() is threading.main_thread():
                _install()  # once more: jax.distributed has put its own SIGTERM handler there
            _holding = self
            try:
                yield
            finally:
                _holding = None
        elif threading.current_thread() is threading.main_thread():
            with self._handlers():
                yield
        else:
            yield

    @contextlib.contextmanager
    def _handlers(self) -> Iterator[None]:
        before = {}

        def remember(number: int, frame: object) -> None:
            del frame
            self.signal = number
            for watched, handler in before.items():
                again = signal.SIG_IGN if watched == signal.SIGHUP else handler
                signal.signal(watched, again)

        for watched in WATCHED:
            if watched == signal.SIGHUP and signal.getsignal(watched) == signal.SIG_IGN:
                continue  # as `nohup` leaves it
            before[watched] = signal.signal(watched, remember)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
