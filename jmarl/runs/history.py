"""What a runner remembers of its own lines; all of them are with its recorder."""

from typing import Any

Entry = dict[str, Any]


class History:
    """Every member's first and last evaluation and its final score."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[Any, Entry]] = {"first": {}, "last": {}, "absolute": {}}

    @property
    def evaluations(self) -> list[Entry]:
        return [e for part in self._ends.values() for e in part.values()]

    def add_evaluation(self, entries: list[Entry]) -> None:
        for entry in entries:
            member = entry.get("member")
            if "absolute" in entry:
                self._ends["absolute"][member] = entry
            elif member not in self._ends["first"]:
                self._ends["first"][member] = entry
            else:
                self._ends["last"][member] = entry
