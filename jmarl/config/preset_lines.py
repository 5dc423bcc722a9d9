"""Where in a file an option is named that the algorithm does not use."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from jmarl.config.formatting import listed
from jmarl.errors import ConfigError, InapplicableOptionError

DEEPEST = 3  # sections within a sweep's base


def located(error: InapplicableOptionError, path: Path, parts: tuple[str, ...] = ()) -> ConfigError:
    """The refusal with the lines of the file to delete; the refusal itself where the file does not
    name the options. `parts`: below which keys options stand, by full or by short name."""
    short = [name.rpartition(".")[2] for name in error.options]
    below = {f"{part}.{name}" for part in parts for name in (*error.options, *short)}
    names = below or set(error.options)
    document = yaml.compose(path.read_text(encoding="utf-8"))
    places = [
        f"{name.rpartition('.')[2]!r} in line {line}"
        for name, line in _keys(document)
        if name in names
    ]
    return ConfigError(f"{error} Delete {listed(places)} of {str(path)!r}.") if places else error


def _keys(node: yaml.Node | None, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    """Every key of a document with its line, from 1; keys of sections as `section.key`."""
    if not isinstance(node, yaml.MappingNode) or depth == DEEPEST:
        return
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        yield name, key.start_mark.line + 1
        yield from _keys(value, f"{name}.", depth + 1)
