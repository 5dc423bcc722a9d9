"""Errors that a user can act on: messages name the given value and the valid ones."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import pydantic

LONGEST = 200  # characters of a value in a message


class ConfigError(ValueError):
    """A name, value or combination that the user must change. Commands print it as one sentence."""


class InapplicableOptionError(ConfigError):
    """Options that the chosen algorithm does not use; the message names the first of them."""

    def __init__(self, options: Iterable[str], message: str) -> None:
        super().__init__(message)
        self.options = tuple(options)


class RunError(RuntimeError):
    """A run cannot continue, for reasons other than its configuration. Commands print it as one
    sentence."""


class AllFailedError(RunError):
    """Every member that was still in training has failed, so that training ends."""

    def __init__(self, message: str, failed: Mapping[int, str], update: int) -> None:
        """`failed`: member → the metric that was not finite. `update`: where training ends."""
        super().__init__(message)
        self.failed, self.update = dict(failed), update


def brief(value: Any) -> str:
    """A value as it was given; of a long one the beginning."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more digits
        return "a number of more than 4300 digits"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"


def unknown(kind: str, name: str, valid: Iterable[str]) -> ConfigError:
    """The error for a name that does not exist: the nearest match, then all valid names."""
    names = sorted(valid)
    near = difflib.get_close_matches(name[:LONGEST], names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return ConfigError(f"unknown {kind} {brief(name)}: {hint}Valid: {', '.join(names) or 'none'}.")


def check_known(kind: str, given: Mapping[str, Any], valid: Iterable[str]) -> None:
    """Refuse the first key of `given` that is not in `valid`."""
    valid = list(valid)
    for name in given:
        if name not in valid:
            raise unknown(kind, name, valid)


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    choices = list(choices)
    if value not in choices:
        raise ConfigError(f"{name}={brief(value)} is not one of {', '.join(choices)}.")


def check_int(name: str, value: Any, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ConfigError(f"{name}={brief(value)} is not a whole number of at least {low}.")
    if high is not None and value > high:
        raise ConfigError(f"{name}={brief(value)} is not a whole number of at most {high}.")


def check_float(name: str, value: Any, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise ConfigError(f"{name}={brief(value)} is not a number from {low} to {high}.")


def check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={brief(value)} is neither True nor False.")


def validated(model: Any, values: Mapping[str, Any]) -> Any:
    """Build a pydantic model; the first validation error becomes a ConfigError."""
    try:
        return model(**values)
    except pydantic.ValidationError as error:
        raise refused(error.errors()[0]) from None


def refused(fault: Any) -> ConfigError:
    """The ConfigError for one of pydantic's errors: the key, its value and the reason."""
    key = ".".join(str(part) for part in fault["loc"])
    return ConfigError(f"{key}={brief(fault['input'])} is refused: {fault['msg'].lower()}.")
