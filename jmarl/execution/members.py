"""The members of a population: their seeds and hyperparameters, and their best policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from jmarl.learning.ppo_loss import HyperParams
from jmarl.types import PolicyState, TrainState

NO_SCORE = -1e30  # of members that were not evaluated
Policies = tuple[PolicyState, ...]  # one per player


class Members(NamedTuple):
    """Seeds and hyperparameters, one of each per member."""

    seeds: tuple[int, ...]
    hyper: HyperParams  # leaves [M], of numpy

    @classmethod
    def alike(cls, seeds: Sequence[int], hyper: HyperParams) -> "Members":
        return cls(tuple(seeds), jax.tree.map(lambda x: np.full(len(seeds), x), hyper))


class WarmStart(NamedTuple):
    """What members begin with in place of random parameters and empty statistics."""

    arrays: Mapping[str, np.ndarray]  # by name, as `jmarl.execution.named_leaves` has them
    about: dict[str, Any]  # where they are from


class Snapshot(NamedTuple):
    """Everything that a population resumes from."""

    states: TrainState  # [A, …] of the members in training; without that axis for a single run
    best: Policies  # [M, …] of all members
    hyper: HyperParams  # [M]


@dataclass
class Best:
    """Every member's best policies so far, also of those no longer in training."""

    score: np.ndarray  # [M]
    update: np.ndarray  # [M]
    parameters: Policies  # leaves [M, …]

    def of(self, member: int) -> Policies:
        return jax.tree.map(lambda x: x[member], self.parameters)
