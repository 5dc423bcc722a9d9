"""The format of runs on disk: its number, and how checkpoints of older formats are read.

Every checkpoint and every run directory carries the number of its format and the version of jmarl
that wrote it. When the names or shapes of stored arrays change, increase `FORMAT` and add to
`TRANSLATIONS` how the arrays of the format before become those of the new one; runs that
`tests/support/stored_runs` holds then show that older runs still resume.
"""

import importlib.metadata
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jmarl.errors import ConfigError
from jmarl.runs.files import VERSIONS, read_json

FORMAT = 3

Arrays = dict[str, np.ndarray]  # by name, as `jmarl.execution.named_leaves` has them

# Format 1 kept parameters, optimisers and statistics in tuples of their own; since format 2 every
# player has a policy (parameters, input statistics) and a learner.
PLAYERS_1 = (
    (r"^(states\.|best\.|)params\.(\d+)\.", r"\1policies.\2.params."),
    (r"^(states\.|)opt_state\.(\d+)", r"\1learners.\2.opt_state"),
    (r"^(states\.|)value_norm\.(\d+)\.", r"\1learners.\2.value_norm."),
    (r"^(states\.|)normalisers\.(obs|state)\.", r"\1policies.0.obs_stats.\2."),
    (r"^(states\.|)normalisers\.reward\.", r"\1learners.0.reward_scale."),
    (r"^best\.norms\.(obs|state)\.", r"best.policies.0.obs_stats.\1."),
    (r"^best\.policies\.", "best."),
)


def with_players(arrays: Arrays) -> Arrays:
    """From format 1 to 2. Format 1 normalised all agents' inputs together, and it is not stored
    which of them belonged to which player."""
    normalised = any(re.search(r"(normalisers|norms)\.", name) for name in arrays)
    if normalised and any(re.search(r"(^|\.)params\.1\.", name) for name in arrays):
        raise ConfigError(
            "the checkpoint has format 1 with normalised observations or rewards of several "
            "players, which this version cannot read; jmarl up to commit 0398abb can."
        )
    kept = {n: array for n, array in arrays.items() if not n.startswith("best.norms.reward.")}
    for pattern, name in PLAYERS_1:
        kept = {re.sub(pattern, name, old): array for old, array in kept.items()}
    return kept


def with_episode_returns(arrays: Arrays) -> Arrays:
    """From format 2 to 3, which also keeps the rewards of running episodes. Those of before are not
    known, so that episodes that are under way will not be counted."""
    found = (re.fullmatch(r"(states\.|)timestep\.reward", name) for name in arrays)
    missing = {f"{known[1]}episode_return": arrays[known[0]] for known in found if known}
    return arrays | {name: np.full_like(reward, np.nan) for name, reward in missing.items()}


# From the arrays of a format to those of the next one.
TRANSLATIONS: dict[int, Callable[[Arrays], Arrays]] = {1: with_players, 2: with_episode_returns}


def stamp() -> dict[str, Any]:
    """What a checkpoint or a run directory says about its format."""
    try:
        version = importlib.metadata.version("jmarl")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        version = "unknown"
    return {"format": FORMAT, "jmarl": version}


def format_of(stamped: Mapping[str, Any]) -> int:
    """1 of what was written before formats had numbers, or is damaged."""
    found = stamped.get("format", 1)
    return found if type(found) is int else 1


def check_format(stamped: Mapping[str, Any], what: str) -> None:
    """Refuse what a newer jmarl wrote."""
    if (found := format_of(stamped)) > FORMAT:
        here = stamp()["jmarl"]
        raise ConfigError(
            f"{what} has format {found}, written by jmarl {stamped.get('jmarl', 'unknown')}; this "
            f"is jmarl {here}, which reads formats up to {FORMAT}. Install the newer version."
        )


def check_directory(path: Path) -> None:
    """Refuse the directory of a run or a group that a newer jmarl wrote."""
    check_format(read_json(path / VERSIONS), repr(str(path)))


def translated(arrays: Arrays, stored: int) -> Arrays:
    """Arrays of the format `stored`, in today's."""
    for number in range(stored, FORMAT):
        arrays = TRANSLATIONS[number](arrays)
    return arrays
