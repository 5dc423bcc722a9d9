"""Signals that end a run: held back until it is safe."""

import contextlib
import signal
from collections.abc import Iterator


class Interruption:
    """Remembers the first SIGINT or SIGTERM; a second one is no longer held back."""

    signal: int | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        before = {}

        def remember(number: int, frame: object) -> None:
            del frame
            self.signal = number
            for watched, handler in before.items():
                signal.signal(watched, handler)

        with contextlib.suppress(ValueError):  # only the main thread may watch
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, remember)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
