"""Finds the collectives of a compiled program in its HLO text."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

KINDS = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "reduce-scatter",
)
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s64": 8, "u64": 8, "f64": 8}  # else 4

COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
INSTRUCTION = re.compile(r"= (.*?) ([\w\-]+)\(")
ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
CALLED = re.compile(
    r"(?:body|calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)"
    r"|branch_computations=\{([^}]*)\}"
)
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


class Collective(NamedTuple):
    kind: str  # one of `KINDS`
    size: int  # bytes of the result on each device
    loops: tuple[int, ...]  # trip counts of the enclosing loops, outermost first; 0 if unknown

    @property
    def times(self) -> int:
        """How often it runs in one execution of the program."""
        return math.prod(max(turns, 1) for turns in self.loops)


def collectives(text: str) -> list[Collective]:
    """All collectives of a program, given `jax.stages.Compiled.as_text()`; every branch counts as
    taken."""
    entry, bodies = _computations(text)
    return list(_within(bodies, entry, ()))


def _computations(text: str) -> tuple[str, dict[str, list[str]]]:
    """The name of the entry computation, and the lines of every computation."""
    entry, bodies, lines = "", {}, []
    for line in text.splitlines():
        if found := COMPUTATION.match(line):
            lines = bodies.setdefault(found[2], [])
            entry = found[2] if found[1] else entry
        else:
            lines.append(line)
    return entry, bodies


def _within(
    bodies: dict[str, list[str]], name: str, loops: tuple[int, ...]
) -> Iterator[Collective]:
    for line in bodies[name]:
        if not (found := INSTRUCTION.search(line)):
            continue
        shape, kind = found[1], found[2].removesuffix("-start")
        if kind in KINDS:
            yield Collective(kind, _size(shape), loops)
        inner = loops
        if kind == "while":
            turns = TRIPS.search(line)
            inner = (*loops, int(turns[1]) if turns else 0)
        for one, several in CALLED.findall(line):
            for called in (one or several).split(","):
                yield from _within(bodies, called.strip().lstrip("%"), inner)


def _size(shape: str) -> int:
    """Bytes of an array or of a tuple of arrays."""
    return sum(
        BYTES.get(dtype, 4) * math.prod(int(n) for n in axes.split(",") if n)
        for dtype, axes in ARRAY.findall(shape)
    )
