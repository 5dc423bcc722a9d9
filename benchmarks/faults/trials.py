"""What one fault did, and what the kinds of faults share."""

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

REFUSED = 2  # exit code


class Trial(NamedTuple):
    """One fault, tried."""

    kind: str
    fault: str
    problem: str = ""  # why it was not survived
    lost: int = 0  # updates since the last checkpoint


class Bench:
    """Where a kind of faults works, and whom it tells what it found."""

    def __init__(self, place: Path, quick: bool, seed: int, tell: Callable[[Trial], None]) -> None:
        self.place, self.quick, self.seed = place, quick, seed
        self._tell, self._lock = tell, threading.Lock()

    def tell(self, trial: Trial) -> None:
        with self._lock:
            self._tell(trial)

    def times(self, full: int) -> int:
        """How often to try something."""
        return max(1, full // 10) if self.quick else full

    def random(self, kind: str) -> random.Random:
        return random.Random(f"{self.seed} {kind}")


# Tries one kind of faults.
Kind = Callable[[Bench, str], None]


def first(*problems: str) -> str:
    """The first problem, if there is any."""
    return next((problem for problem in problems if problem), "")
