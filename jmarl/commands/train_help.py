"""Help of the train command: the declared options, in groups."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jmarl.config.declaration import Group
from jmarl.config.formatting import listed
from jmarl.config.known_options import FIELDS, OPTIONS
from jmarl.config.option_names import limits
from jmarl.config.train_config import Config, flat_values
from jmarl.registry import ALGORITHMS

EVERYDAY = "everyday options"
PAGE = """Written from the declarations in `jmarl/config/` by
`python -c "from jmarl.commands.train_help import page; print(page(), end='')"`. `mat`, `ppo` and
`happo` have defaults of their own (`jmarl/config/algorithms.py`), which
`python -m jmarl.train --algorithm NAME --help` shows."""
SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
NAMES: Mapping[Any, str] = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
USAGE = "usage: python -m jmarl.train [PRESET.yaml] [--option value …]"
WORLDS = "--list-worlds prints the worlds that --env can name."
SWITCHES = "Options without a value are switches: --gif turns one on, --no-gif off."


class Line(NamedTuple):
    """One option in the help."""

    flag: str
    value: str  # its form
    text: str


def wanted(arguments: Sequence[str]) -> Literal["help", "help-all"] | None:
    """Which help a command line asks for."""
    if "--help-all" in arguments or "--help_all" in arguments:
        return "help-all"
    return "help" if "--help" in arguments or "-h" in arguments else None


def show(console: Console, config: Config, everything: bool, usage: str = USAGE) -> None:
    """The options that the configuration's algorithm uses, with its values as defaults; or those of
    all algorithms."""
    mine = f"Options of algorithm={config.algorithm}; for another's, add --algorithm NAME, or see"
    about = (
        f"Options of all algorithms, with the defaults of {config.algorithm}."
        if everything
        else f"{mine} --help-all."
    )
    for text in (usage, about, SWITCHES, WORLDS):
        console.print(text, markup=False, highlight=False)
    groups = list(grouped(config, everything))
    width = max(len(line.flag) for _, lines in groups for line in lines)
    for group, lines in groups:
        table = Table(title=Text(group, style="bold"), title_justify="left", box=None)
        table.show_header = False
        table.add_column(no_wrap=True, min_width=width)
        table.add_column(overflow="fold")
        for line in lines:
            form = Text(f"{line.value}  " if line.value else "", style="cyan")
            table.add_row(line.flag, form + Text(line.text))
        console.print()
        console.print(table, highlight=False)


def page() -> str:
    """All options as Markdown, with the declared defaults: docs/options.md."""
    text = f"# Options of `python -m jmarl.train`\n\n{PAGE}\n"
    for group, lines in grouped(Config(), everything=True):
        text += f"\n## {group.capitalize()}\n\n| option | value | meaning |\n|---|---|---|\n"
        for flag, value, meaning in lines:
            form = f"`{value}`".replace("|", "\\|") if value else "switch"
            text += f"| `{flag}` | {form} | {meaning} |\n"
    return text


def grouped(config: Config, everything: bool = False) -> Iterator[tuple[str, list[Line]]]:
    """Everyday options, then the others group by group."""
    shown = dict(flat_values(config))
    names = [name for name in OPTIONS if everything or name in shown]
    everyday = [name for name in names if OPTIONS[name].everyday]
    groups: dict[str, list[str]] = {EVERYDAY: everyday}
    groups |= {
        group: [n for n in names if OPTIONS[n].group == group and n not in everyday]
        for group in get_args(Group)
    }
    for group, members in groups.items():
        if members:
            defaults = {name: shown.get(name, FIELDS[name].default) for name in members}
            yield group, [_line(name, value, everything) for name, value in defaults.items()]


def _line(name: str, default: Any, with_algorithms: bool) -> Line:
    info, users = FIELDS[name], OPTIONS[name].algorithms
    notes = [f"default: {_written(default)}"]
    if allowed := _range(info):
        notes.append(allowed)
    if with_algorithms and len(users) < len(ALGORITHMS):
        notes.append(f"for {listed(users)}")
    text = f"{info.description} ({'; '.join(notes)})"
    form = f"{{{'|'.join(ALGORITHMS)}}}" if name == "algorithm" else _form(info.annotation)
    return Line(f"--{name.replace('_', '-')}", form, text)


def _form(kind: Any) -> str:
    """How a value is written: `INT`, `{relu|tanh}`."""
    parts = get_args(kind)
    if kind is bool:
        return ""
    if get_origin(kind) is Literal:
        return f"{{{'|'.join(map(str, parts))}}}"
    if get_origin(kind) in (Union, UnionType):
        return "|".join("None" if part is NoneType else _form(part) for part in parts)
    if get_origin(kind) is tuple:
        return f"{_form(parts[0])} …"
    if get_origin(kind) is Annotated:  # with a range of its own
        return _form(parts[0])
    if get_origin(kind) is dict:
        return "NAME VALUE …"
    return NAMES[kind]


def _range(info: FieldInfo) -> str:
    return " and ".join(
        f"{SIGNS[kind]} {limit:.10g}" for kind, limit in limits(info) if kind in SIGNS
    )


def _written(value: Any) -> str:
    """A value as it is typed."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return " ".join(f"{name} {inner}" for name, inner in value.items()) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
