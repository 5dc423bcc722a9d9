"""The form in which options are declared: `option` says everything about one of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from jmarl.registry import ALGORITHMS, uses

Group = Literal[
    "environment and budget",
    "evaluation, logs and checkpoints",
    "devices and processes",
    "networks",
    "actions",
    "optimiser",
    "minibatches",
    "returns and advantages",
    "losses",
    "search",
    "of single algorithms",
]
RECORD = "option"  # the key of the record in a field's extra data
NOT_LEARNING = "it does not change what is learned"


@dataclass(frozen=True)
class Option:
    """What is known of an option besides its type, default, range and help, which pydantic has."""

    group: Group  # in the help
    everyday: bool  # first in the help
    declared_for: tuple[str, ...] | None  # algorithms that read it; None: all
    traced: bool  # members of one compiled program may differ in it
    resumable: bool  # it may change when a run is resumed
    learning: bool  # runs that differ in it are different settings
    unswept: str  # why a sweep cannot vary it; empty: it can
    in_base: bool  # a sweep may set it for all of its runs
    name: str = ""  # in full, once it is known

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Those that use it."""
        return tuple(each for each in ALGORITHMS if self.used_by(each))

    def used_by(self, algorithm: str) -> bool:
        return uses(algorithm, self.name, self.declared_for)


def option(
    default: Any,
    help: str,
    *,
    group: Group = "of single algorithms",
    everyday: bool = False,
    algorithms: tuple[str, ...] | None = None,
    traced: bool = False,
    resumable: bool = False,
    learning: bool = True,
    unswept: str = "",
    in_base: bool = True,
    **limits: float,
) -> Any:
    """A field of a `Section`. `limits`: pydantic's `ge`, `gt`, `le`, `lt` and `min_length`."""
    why = unswept or ("" if learning else NOT_LEARNING)
    record = Option(group, everyday, algorithms, traced, resumable, learning, why, in_base)
    extra: Any = {RECORD: record}
    field: Any = Field
    return field(default=default, description=help, json_schema_extra=extra, **limits)


class Section(BaseModel):
    """Options under one name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def declared(info: FieldInfo) -> Option:
    """The record of a field that `option` has made."""
    extra = info.json_schema_extra
    record: Any = extra.get(RECORD) if isinstance(extra, dict) else None
    if not isinstance(record, Option):
        raise TypeError(f"{info!r} is not declared by option().")
    return record


def sections_of(model: type[Section]) -> dict[str, type[Section]]:
    """The sections within a section."""
    kinds = ((name, info.annotation) for name, info in model.model_fields.items())
    return {
        name: kind for name, kind in kinds if isinstance(kind, type) and issubclass(kind, Section)
    }


def fields_of(model: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """All options below a section by full name, `ppo.lr`."""
    inner = sections_of(model)
    for name, info in model.model_fields.items():
        if name in inner:
            yield from fields_of(inner[name], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", info
