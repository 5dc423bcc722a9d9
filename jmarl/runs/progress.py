"""Progress on the screen: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

import math
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

# Metrics and their formats. A narrow terminal shows only the first ones.
RETURNS = {
    ("eval/return_mean",): "return {:.1f}",
    ("members/return_iqm", "members/return_iqm_low", "members/return_iqm_high"): (
        "IQM {:.1f} (95%: {:.1f} … {:.1f})"
    ),
    ("members/return_best",): "best {:.1f}",
}
OTHERS = {
    ("charts/SPS",): "{:,.0f} steps/s",
    ("eval/win_rate",): "won {:.0%}",
    ("losses/policy_loss",): "policy loss {:.3f}",
    ("losses/value_loss",): "value loss {:.3f}",
}
GAP = "  "
SECONDS_BETWEEN_LINES = 5.0
NARROWEST_BAR, WIDEST_BAR = 10, 40
ROOM_FOR_METRICS = 70  # columns that metrics get before the bar grows


class Screen:
    """A context manager; `show` takes each entry of metrics or evaluations."""

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
        """Print a line above the bar."""
        if not self._quiet:
            self._console.print(text, markup=False, soft_wrap=True)


def _formatted(known: dict[str, Any]) -> list[str]:
    """Returns of opposing teams are those of each team, after its name."""
    teams = {f"{team} ": f"/{team}" for team in known.get("teams", ())} or {"": ""}
    shown = [
        (tuple(key + suffix for key in keys), name + text)
        for name, suffix in teams.items()
        for keys, text in RETURNS.items()
    ]
    return [
        text.format(*(known[key] for key in keys))
        for keys, text in (*shown, *OTHERS.items())
        if all(known.get(key) is not None for key in keys)
        and not any(math.isnan(known[key]) for key in keys[1:])  # a single seed has no interval
    ]


def _bar(console: Console, total: int) -> Progress:
    """Description, bar, updates and time left always fit; metrics get the rest of the line."""
    fixed = len(f"compiling {total}/{total} updates 0:00:00 ")

    def bar_width() -> int:
        spare = console.width - fixed - 1 - ROOM_FOR_METRICS
        return max(NARROWEST_BAR, min(WIDEST_BAR, spare))

    class Bar(BarColumn):
        def render(self, task: Task) -> ProgressBar:
            self.bar_width = bar_width()  # for the current width of the window
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
    """Join as many of the first parts as fit into `width`."""
    kept = 0
    while kept < len(parts) and len(GAP.join(parts[: kept + 1])) <= width:
        kept += 1
    return GAP.join(parts[:kept])
