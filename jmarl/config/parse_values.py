"""Values as they are written for sweeps, in YAML and on the command line."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from jmarl.config.yaml_files import YamlError, load_yaml
from jmarl.errors import ConfigError

WAYS = {  # to draw a value, and how each is written
    "uniform": "[low, high]",
    "log_uniform": "[low, high]",
    "choice": "[value, …]",
}
PATHS = ("preset", "sweep_dir", "resume")
EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def with_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """A sweep's values, with numbers as they are meant."""
    try:
        return {key: value if key in PATHS else as_meant(value) for key, value in values.items()}
    except RecursionError:
        raise ConfigError("the sweep's values contain themselves.") from None


def as_meant(value: Any) -> Any:
    """YAML 1.1 takes `3e-4` for a word; here it is a number, however deep it stands."""
    if isinstance(value, Mapping):
        return {key: as_meant(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(as_meant(inner) for inner in value)
    if isinstance(value, str) and EXPONENT.fullmatch(value.strip()):
        return float(value)
    return value


def typed_base(entries: Iterable[str]) -> dict[str, Any]:
    """`name=value …`."""
    return {name: _value(name, text) for name, text in _split(entries, "name=value")}


def typed_grid(entries: Iterable[str]) -> dict[str, list[Any]]:
    """`name=value,value …`."""
    return {name: _value(name, f"[{text}]") for name, text in _split(entries, "name=value,value")}


def typed_random(entries: Iterable[str]) -> dict[str, dict[str, list[Any]]]:
    """`name=uniform:low:high …`, `name=choice:value:value …`."""
    found = {}
    for name, text in _split(entries, "name=uniform:low:high"):
        way, *values = text.split(":")
        found[name] = {way: [_value(name, value) for value in values]}
    return found


def _split(entries: Iterable[str], like: str) -> Iterable[tuple[str, str]]:
    seen = set()
    for entry in entries:
        name, equals, text = entry.partition("=")
        if not (name and equals and text):
            raise ConfigError(f"{entry!r} is not of the form {like}.")
        if name in seen:
            raise ConfigError(f"{name} is given twice.")
        seen.add(name)
        yield name, text


def _value(name: str, text: str) -> Any:
    try:
        return as_meant(load_yaml(text))
    except (YamlError, yaml.YAMLError):
        raise ConfigError(f"{name}={text} cannot be read as a value.") from None
