"""Errors that a person can act on: what was given, and what would be right."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import pydantic


class ConfigError(ValueError):
    """A name, value or combination that the user must change. Commands print it as one sentence."""


class RunError(RuntimeError):
    """A run that cannot go on, for reasons outside of its configuration. Also one sentence."""


def unknown(kind: str, name: str, valid: Iterable[str]) -> ConfigError:
    """The refusal of a name that does not exist: the nearest match first, then all valid names."""
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return ConfigError(f"unknown {kind} {name!r}: {hint}Valid: {', '.join(names) or 'none'}.")


def check_known(kind: str, given: Mapping[str, Any], valid: Iterable[str]) -> None:
    """Refuse the first key of `given` that is not in `valid`."""
    valid = list(valid)
    for name in given:
        if name not in valid:
            raise unknown(kind, name, valid)


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    choices = list(choices)
    if value not in choices:
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(choices)}.")


def check_int(name: str, value: Any, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ConfigError(f"{name}={value!r} is not a whole number of at least {low}.")


def check_float(name: str, value: Any, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise ConfigError(f"{name}={value!r} is not a number from {low} to {high}.")


def check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r} is neither True nor False.")


def validated(model: Any, values: Mapping[str, Any]) -> Any:
    """A pydantic model built from values; the first fault is named in one sentence."""
    try:
        return model(**values)
    except pydantic.ValidationError as error:
        raise refused(error.errors()[0]) from None


def refused(fault: Any) -> ConfigError:
    """One of pydantic's faults: the key, its value and what is wrong with it."""
    key = ".".join(str(part) for part in fault["loc"])
    return ConfigError(f"{key}={fault['input']!r} is refused: {fault['msg'].lower()}.")
