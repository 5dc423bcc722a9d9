"""What a person sees of a run: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

SHOWN = {
    "charts/SPS": "{:,.0f} steps/s",
    "eval/return_mean": "return {:.1f}",
    "members/return_iqm": "IQM {:.1f}",
    "members/return_iqm_low": "({:.1f} …",
    "members/return_iqm_high": "{:.1f})",
    "members/return_best": "best {:.1f}",
    "eval/win_rate": "won {:.0%}",
    "losses/policy_loss": "policy loss {:.3f}",
    "losses/value_loss": "value loss {:.3f}",
}
SECONDS_BETWEEN_LINES = 5.0


class Screen:
    """Used as a context; `show` takes metrics and evaluations as they come."""

    def __init__(self, console: Console, total: int, quiet: bool) -> None:
        self._console, self._total, self._quiet = console, total, quiet
        self._bar = None
        if console.is_terminal and not quiet:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total} updates"),
                TextColumn("{task.fields[shown]}"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=console)
            self._task = self._bar.add_task("compiling", total=total, shown="")
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
        known = self._known
        shown = "  ".join(f.format(known[k]) for k, f in SHOWN.items() if known.get(k) is not None)
        if self._bar is not None:
            done = entry["update"]
            self._bar.update(self._task, description="training", completed=done, shown=shown)
            return
        now = time.monotonic()
        if not self._quiet and now - self._last >= SECONDS_BETWEEN_LINES:
            self.note(f"update {entry['update']}/{self._total}  {shown}")
            self._last = now

    def note(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self._console.print(text, markup=False, soft_wrap=True)
