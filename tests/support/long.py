"""Parameters of tests that together take many seconds."""

import pytest


def all_but_long(values, *short):
    """All values; the tests of those that are not in `short` are marked long."""
    return [
        value if value in short else pytest.param(value, marks=pytest.mark.long) for value in values
    ]
