"""Numbers as files have them."""

import math
from typing import Any


def number(value: Any) -> float | None:
    """The value, if it is a finite number. JSON has null for NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
