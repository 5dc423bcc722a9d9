"""Warns when training stalls: XLA may abort the process later, without a message of ours."""

import threading
from collections.abc import Callable

SECONDS = 600


class Watchdog:
    """A context manager that calls `stalled` once if `alive` is not called for `seconds`. Time in
    which the process is stopped or the machine sleeps does not count."""

    def __init__(self, stalled: Callable[[], None], seconds: int = SECONDS) -> None:
        self._stalled, self._limit = stalled, seconds
        self._silent, self._end = 0, threading.Event()

    def __enter__(self) -> "Watchdog":
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *fault: object) -> None:
        self._end.set()

    def alive(self) -> None:
        self._silent = 0

    def _watch(self) -> None:
        while not self._end.wait(1.0):
            self._silent += 1
            if self._silent == self._limit:
                self._stalled()
