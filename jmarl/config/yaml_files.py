"""YAML files, loaded safely and within bounds.

A few hundred bytes can stand for terabytes, where aliases repeat aliases. Therefore a document is
measured before it is loaded, and every alias counts as what it repeats.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.error import MarkedYAMLError

from jmarl.errors import ConfigError, brief

LARGEST = 10**6  # characters of what people write
LARGEST_STORED = 10**9  # of what jmarl has written: a sweep stores all its members
DEEPEST = 50  # mappings and lists within each other
LARGEST_INT = 2**63  # beyond, digits stay text, which whoever wanted a number refuses

_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where libyaml is there


class _Loader(_Safe):
    """Dates stay text, and so do numbers that are too long."""

    def number(self, node: yaml.ScalarNode, convert: Any) -> Any:
        try:
            value = convert(self, node)
        except (ValueError, OverflowError):  # thousands of digits
            return self.construct_scalar(node)
        return value if not isinstance(value, int) or abs(value) < LARGEST_INT else node.value


_Loader.add_constructor(
    "tag:yaml.org,2002:int", lambda self, node: self.number(node, _Safe.construct_yaml_int)
)
_Loader.add_constructor(
    "tag:yaml.org,2002:float", lambda self, node: self.number(node, _Safe.construct_yaml_float)
)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Safe.construct_yaml_str)


class YamlError(ValueError):
    """What is wrong with a document, with the line if it is known."""


@dataclass
class _Open:
    """A mapping or list that has begun."""

    before: int  # size of the document up to it
    anchor: str | None
    mapping: bool
    keys: set[str] = field(default_factory=set)
    at_value: bool = False  # of a mapping: a key was last


def read_yaml(path: Path, what: str, stored: bool = False) -> dict[str, Any]:
    """The mapping in a file. `what` it is, for refusals; `stored`: jmarl wrote it."""
    largest = LARGEST_STORED if stored else LARGEST
    where = f"{what} {str(path)!r}"
    try:
        content = _beginning(path, largest)
        if len(content) > largest:
            raise ConfigError(f"{where} is larger than {largest / 1e6:g} MB.")
        loaded = load_yaml(content.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} cannot be read: {error}.") from None
    except YamlError as error:
        raise ConfigError(f"{where} cannot be used: {error}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not YAML: {_explained(error)}.") from None
    if not isinstance(loaded, dict):
        raise ConfigError(f"{where} is not a mapping of options.")
    return loaded


def _beginning(path: Path, largest: int) -> bytes:
    """The file, or little more than `largest` bytes of it, if it is larger or endless."""
    content = bytearray()
    with path.open("rb") as file:
        while len(content) <= largest and (block := file.read(LARGEST)):
            content += block
    return bytes(content)


def load_yaml(text: str) -> Any:
    """The value of a document; YamlError or yaml.YAMLError if it is none that can be used."""
    try:
        _check(text)
        return yaml.load(text, Loader=_Loader)
    except UnicodeEncodeError as error:  # half a character, of a command line
        raise YamlError(f"{error.object[error.start]!r} is not a character") from None


def _check(text: str) -> None:
    """Refuse what is too large, too deep, or has a key twice."""
    size = repeated = 0
    sizes: dict[str | None, int] = {}  # by anchor
    opened: list[_Open] = []
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            ended = opened.pop()
            sizes[ended.anchor] = size - ended.before
        if not isinstance(event, yaml.NodeEvent):
            continue
        if opened and opened[-1].mapping:
            _check_key(opened[-1], event)
        if getattr(event, "tag", None) is not None:
            raise MarkedYAMLError(problem="options have no tags", problem_mark=event.start_mark)
        before = size
        if isinstance(event, yaml.AliasEvent):
            if any(one.anchor == event.anchor for one in opened):
                raise _fault(event, f"*{event.anchor} contains itself")
            size += sizes.get(event.anchor, 0)
            repeated += size - before
        elif isinstance(event, yaml.ScalarEvent):
            size += len(event.value) + 1
            sizes[event.anchor] = size - before
        else:
            size += 1
            opened.append(_Open(before, event.anchor, isinstance(event, yaml.MappingStartEvent)))
        if repeated > LARGEST:
            raise _fault(event, f"aliases repeat more than {LARGEST / 1e6:g} MB")
        if len(opened) > DEEPEST:
            raise _fault(event, f"it is nested more than {DEEPEST} deep")


def _check_key(mapping: _Open, event: yaml.NodeEvent) -> None:
    """Keys and values take turns."""
    mapping.at_value = not mapping.at_value
    if not mapping.at_value:
        return
    if not isinstance(event, yaml.ScalarEvent):
        raise _fault(event, "a key must be a name")
    if event.value in mapping.keys:
        raise _fault(event, f"the key {brief(event.value)} is there twice")
    mapping.keys.add(event.value)


def _fault(event: yaml.Event, what: str) -> YamlError:
    return YamlError(f"line {event.start_mark.line + 1}: {what}")


def _explained(error: yaml.YAMLError) -> str:
    """In one line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if mark is None or problem is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}: {problem}"
