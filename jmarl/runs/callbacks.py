"""What a caller may do between chunks of updates, on the host."""

from collections.abc import Iterable, Sequence
from typing import Any

from jmarl.runs.history import Entry


class Callback:
    """Override what you need. A method that returns True ends training there: the run is then
    evaluated, saved and finished, and can be resumed. Among several processes, all must decide
    alike.

    `line` is what the run's file of lines gets. Of several seeds it has means over them, and
    `members` has each one's own line.
    """

    def on_metrics(self, line: Entry, members: list[Entry]) -> bool | None:
        """After every `log_every` updates."""

    def on_evaluation(self, line: Entry, members: list[Entry]) -> bool | None:
        """After every evaluation. The first one is of the initial parameters, the last one (with
        `absolute`) of the best ones."""

    def on_checkpoint(self, update: int) -> bool | None:
        """When the checkpoint of this update is on disk, or in memory where nothing is written."""

    def on_end(self, outcome: Any) -> None:
        """When training has ended, with what `jmarl.train` returns."""


class Callbacks:
    """The callbacks of a run, and whether one of them has ended it."""

    def __init__(self, each: Iterable[Callback] = ()) -> None:
        self.each: Sequence[Callback] = tuple(each)
        self.stop = False

    def metrics(self, line: Entry, members: list[Entry]) -> None:
        for one in self.each:
            self.stop |= bool(one.on_metrics(line, members))

    def evaluation(self, line: Entry, members: list[Entry]) -> None:
        for one in self.each:
            self.stop |= bool(one.on_evaluation(line, members))

    def checkpoint(self, update: int) -> None:
        for one in self.each:
            self.stop |= bool(one.on_checkpoint(update))

    def end(self, outcome: Any) -> None:
        for one in self.each:
            one.on_end(outcome)
