"""Lines of a run as columns."""

from array import array
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from jmarl.runs.files import WHOLE
from jmarl.runs.history import Entry


class Columns(dict[str, np.ndarray]):
    """Arrays of one length by name: `columns["train/reward"]`. `pandas.DataFrame(columns)` makes a
    table of them. Where a line does not have a figure, its column has NaN, or None among others
    than numbers."""

    def to_dict(self) -> dict[str, np.ndarray]:
        """A plain dictionary."""
        return dict(self)

    def __repr__(self) -> str:
        rows = len(next(iter(self.values()), ()))
        return f"Columns({rows} rows: {', '.join(self)})"


def columns(lines: Iterable[Entry]) -> Columns:
    """Numbers are stored as such while the lines are read: runs may have a million of them."""
    found: dict[str, Any] = {}
    count = 0
    for count, line in enumerate(lines, 1):
        for name, value in line.items():
            if name not in found:
                found[name] = array("d") if _number(value) else []
            column = _filled(found[name], count - 1)
            if isinstance(column, array) and not _number(value):
                column = found[name] = list(column)
            column.append(np.nan if value is None and isinstance(column, array) else value)
    return Columns({name: _as_array(name, _filled(x, count)) for name, x in found.items()})


def _number(value: Any) -> bool:
    """JSON has null in place of what is not finite."""
    return value is None or (isinstance(value, Real) and not isinstance(value, bool))


def _filled(column: Any, rows: int) -> Any:
    missing = np.nan if isinstance(column, array) else None
    column.extend([missing] * (rows - len(column)))
    return column


def _as_array(name: str, column: Any) -> np.ndarray:
    if isinstance(column, array):
        numbers = np.array(column)
        whole = name in WHOLE and bool(np.isfinite(numbers).all())
        return numbers.astype(np.int64) if whole else numbers
    values = np.empty(len(column), object)
    values[:] = column
    return values
