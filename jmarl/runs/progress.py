"""What a person sees of a run: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

import time
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from jmarl.runs.terminal import has_bar

# Metrics and how they are shown. The first ones are the last to go where the terminal is narrow.
SHOWN = {
    ("eval/return_mean",): "return {:.1f}",
    ("members/return_iqm", "members/return_iqm_low", "members/return_iqm_high"): (
        "IQM {:.1f} ({:.1f} … {:.1f})"
    ),
    ("members/return_best",): "best {:.1f}",
    ("charts/SPS",): "{:,.0f} steps/s",
    ("eval/win_rate",): "won {:.0%}",
    ("losses/policy_loss",): "policy loss {:.3f}",
    ("losses/value_loss",): "value loss {:.3f}",
}
GAP = "  "
SECONDS_BETWEEN_LINES = 5.0
NARROWEST_BAR, WIDEST_BAR = 10, 40
ROOM_FOR_METRICS = 70  # before the bar grows


class Screen:
    """Used as a context; `show` takes metrics and evaluations as they come."""

    def __init__(self, console: Console, total: int, quiet: bool) -> None:
        self._console, self._total, self._quiet = console, total, quiet
        self._bar = None
        if has_bar(console) and not quiet:
            self._bar = _bar(console, total)
            self._task = self._bar.add_task("compiling", total=total, shown=[])
        self._known: dict[str, Any] = {}
        self._last = -SECONDS_BETWEEN_LINES

    def __enter__(self) -> "Screen":
        if self._bar is not None:
            self._bar.start()
        elif not self._quiet:
            self.note("compiling …")
        return self

    def __exit__(self, *fault: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, entry: dict[str, Any]) -> None:
        self._known |= entry
        shown = _formatted(self._known)
        if self._bar is not None:
            done = entry["update"]
            self._bar.update(self._task, description="training", completed=done, shown=shown)
            return
        now = time.monotonic()
        if not self._quiet and now - self._last >= SECONDS_BETWEEN_LINES:
            self.note(f"update {entry['update']}/{self._total}{GAP}{GAP.join(shown)}")
            self._last = now

    def note(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self._console.print(text, markup=False, soft_wrap=True)


def _formatted(known: dict[str, Any]) -> list[str]:
    return [
        text.format(*(known[key] for key in keys))
        for keys, text in SHOWN.items()
        if all(known.get(key) is not None for key in keys)
    ]


def _bar(console: Console, total: int) -> Progress:
    """What is going on, a bar, updates and the time left always fit; metrics get the rest."""
    fixed = len(f"compiling {total}/{total} updates 0:00:00 ")

    def bar_width() -> int:
        spare = console.width - fixed - 1 - ROOM_FOR_METRICS
        return max(NARROWEST_BAR, min(WIDEST_BAR, spare))

    class Bar(BarColumn):
        def render(self, task: Task) -> ProgressBar:
            self.bar_width = bar_width()  # of the window as it is now
            return super().render(task)

    class Metrics(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(fitted(task.fields["shown"], console.width - fixed - 1 - bar_width()))

    def text(template: str) -> TextColumn:
        return TextColumn(template, table_column=Column(no_wrap=True))

    updates = text("{task.completed}/{task.total} updates")
    columns = (text("{task.description}"), Bar(), updates, TimeRemainingColumn(), Metrics())
    return Progress(*columns, console=console)


def fitted(parts: list[str], width: int) -> str:
    """As many of the parts as fit side by side, from the first on."""
    kept = 0
    while kept < len(parts) and len(GAP.join(parts[: kept + 1])) <= width:
        kept += 1
    return GAP.join(parts[:kept])
