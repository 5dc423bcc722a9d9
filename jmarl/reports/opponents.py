"""Which runs are of teams that play against each other, so that no figure is a sum over them."""

import re
from collections.abc import Sequence
from math import fsum, isclose
from typing import Any

from jmarl.reports.numbers import number

Line = dict[str, Any]

RETURN = "eval/return_mean"
OVER_ALL = re.compile(r"(eval|eval_sampled|absolute)/return_[a-z_]+")


def opposing_teams(evals: Sequence[Line]) -> tuple[str, ...]:
    """Their names; none where all agents are one team. Evaluations name them. Those of earlier
    versions do not, but have returns of all agents, of teams and of agents, in this order."""
    named = next((line["teams"] for line in reversed(evals) if "teams" in line), None)
    if isinstance(named, list):
        return tuple(map(str, named))
    names = [_names(line) for line in evals]
    if not names or any(other != names[0] for other in names):
        return ()
    for count in range(2, len(names[0]) // 2 + 1):
        if all(_adds_up(line, names[0], count) for line in evals) and any(map(_says_more, evals)):
            return tuple(names[0][:count])
    return ()


def without_sums(line: Line) -> Line:
    """A line of opponents, as today's version writes it."""
    return {key: value for key, value in line.items() if not OVER_ALL.fullmatch(key)}


def _names(line: Line) -> list[str]:
    return [key.removeprefix(f"{RETURN}/") for key in line if key.startswith(f"{RETURN}/")]


def _returns(line: Line) -> list[float | None]:
    return [number(line.get(f"{RETURN}/{name}")) for name in _names(line)]


def _adds_up(line: Line, names: Sequence[str], count: int) -> bool:
    """Whether the first `count` returns, and those after them, have the sum that is over all."""
    total, each = number(line.get(RETURN)), [line[f"{RETURN}/{name}"] for name in names]
    if total is None or None in map(number, each):
        return True  # it was not finite: this line says nothing
    near = 1e-5 * (1 + fsum(map(abs, each)))
    sides = (fsum(each[:count]), fsum(each[count:]))
    return all(isclose(side, total, abs_tol=near) for side in sides)


def _says_more(line: Line) -> bool:
    """Zeros add up to anything."""
    return any(_returns(line))
