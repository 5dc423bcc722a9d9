"""Checks of options that several scenarios have, and of what they may be combined with."""

from collections.abc import Mapping
from typing import Any

from jmarl.errors import ConfigError, brief, check_bool, check_int

MOST = 1_000_000  # agents or things of a kind; a number of more digits is a mistake


def check_count(name: str, count: Any, low: int) -> None:
    """How many agents or things of a kind there are."""
    check_int(name, count, low, MOST)


def check_neighbours(num_agent_neighbors: int | None, num_landmark_neighbors: int | None) -> None:
    """None: everybody is seen."""
    if num_agent_neighbors is not None:
        check_count("num_agent_neighbors", num_agent_neighbors, low=1)
    if num_landmark_neighbors is not None:
        check_count("num_landmark_neighbors", num_landmark_neighbors, low=1)


def check_curriculum(curriculum: bool, stage: int, stages: int) -> None:
    check_bool("curriculum", curriculum)
    check_int("curriculum_stage", stage, low=0, high=stages - 1)
    if stage and not curriculum:
        raise ConfigError(f"curriculum_stage={stage} needs curriculum=True.")


def check_only_mpe2(dialect: str, chosen: Mapping[str, Any]) -> None:
    """The on-policy code has none of these; None and False are what it does."""
    for name, value in chosen.items():
        if dialect != "mpe2" and value not in (None, False):
            raise ConfigError(
                f"{name}={brief(value)} is not defined for dialect={dialect!r}; only for 'mpe2'."
            )


def own_names(name: str, options: Mapping[str, Any], of_mpe2: Mapping[str, str]) -> dict[str, Any]:
    """The options by jmarl's names; `of_mpe2`: mpe2's name → jmarl's. Giving both is refused."""
    chosen = dict(options)
    for theirs, ours in of_mpe2.items():
        if theirs not in chosen:
            continue
        if ours in chosen:
            raise ConfigError(
                f"options {theirs}={brief(chosen[theirs])} and {ours}={brief(chosen[ours])} of "
                f"{name} are two names of one option; give one of them."
            )
        chosen[ours] = chosen.pop(theirs)
    return chosen
