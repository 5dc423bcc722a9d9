"""All declared options by full name: those of every run, and those that algorithms have of their
own."""

import re
from dataclasses import replace

from pydantic.fields import FieldInfo

from jmarl.config.declaration import Option, Section, declared, fields_of, sections_of
from jmarl.errors import ConfigError, brief

SECTIONS: dict[str, type[Section]] = {}
FIELDS: dict[str, FieldInfo] = {}
OPTIONS: dict[str, Option] = {}
COMMON: set[str] = set()  # the options of every run


def declare_common(model: type[Section]) -> None:
    """The options of every run."""
    SECTIONS.update(sections_of(model))
    _add(dict(fields_of(model)))
    COMMON.update(name for name, _ in fields_of(model))


def declare_own(algorithm: str, section: str, model: type[Section]) -> None:
    """The options that an algorithm has of its own, `section.field`."""
    if not isinstance(model, type) or not issubclass(model, Section):
        raise ConfigError(f"options={brief(model)} of {algorithm!r} is not a subclass of Section.")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", section) or section in SECTIONS or section in FIELDS:
        raise ConfigError(
            f"{section!r} cannot name the options of {algorithm!r}: "
            f"{'it is taken' if section in SECTIONS or section in FIELDS else 'use a-z, 0-9, _'}. "
            "Say section=…"
        )
    fields = dict(fields_of(model, f"{section}."))
    for name, info in fields.items():
        _check_own(algorithm, name, info)
    SECTIONS[section] = model
    _add(fields, owner=algorithm)


def forget(section: str) -> None:
    """An algorithm's own options, before it is registered again."""
    for name, _ in fields_of(SECTIONS.pop(section), f"{section}."):
        del FIELDS[name], OPTIONS[name]


def _add(fields: dict[str, FieldInfo], owner: str | None = None) -> None:
    FIELDS.update(fields)
    for name, info in fields.items():
        record = replace(declared(info), name=name)
        OPTIONS[name] = record if owner is None else replace(record, declared_for=(owner,))


def _check_own(algorithm: str, name: str, info: FieldInfo) -> None:
    """Refuse an option without a default, or one whose short name would mean another one."""
    declared(info)
    if info.is_required():
        raise ConfigError(f"{name}, an option of {algorithm!r}, has no default.")
    leaf = name.rpartition(".")[2]
    if taken := next((known for known in COMMON if known.rpartition(".")[2] == leaf), None):
        raise ConfigError(
            f"{name}, an option of {algorithm!r}, cannot have the name of {taken}: choose another "
            f"name, or register the algorithm with uses=({taken!r},)."
        )
