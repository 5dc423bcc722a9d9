"""Signals that end a run: held back until it is safe."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class Interruption:
    """Remembers the first SIGINT, SIGTERM or SIGHUP. A second SIGINT or SIGTERM is no longer held
    back; a second SIGHUP is ignored, because a terminal that closes may send several. Under `nohup`
    all of them are."""

    signal: int | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        before = {}

        def remember(number: int, frame: object) -> None:
            del frame
            self.signal = number
            for watched, handler in before.items():
                again = signal.SIG_IGN if watched == signal.SIGHUP else handler
                signal.signal(watched, again)

        if threading.current_thread() is threading.main_thread():  # others may not watch
            for watched in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if watched == signal.SIGHUP and signal.getsignal(watched) == signal.SIG_IGN:
                    continue  # as `nohup` leaves it
                before[watched] = signal.signal(watched, remember)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
