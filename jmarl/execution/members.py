"""What is known of the members of a crew: who they are, what they have learned."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from jmarl.learning.ppo_loss import Hyper
from jmarl.types import State

NO_SCORE = -1e30  # of what was not evaluated


class Members(NamedTuple):
    """Who trains: a seed and hyperparameters each."""

    seeds: tuple[int, ...]
    hyper: Hyper  # leaves [M], of numpy

    @classmethod
    def alike(cls, seeds: Sequence[int], hyper: Hyper) -> "Members":
        return cls(tuple(seeds), jax.tree.map(lambda x: np.full(len(seeds), x), hyper))


class Parameters(NamedTuple):
    """What a policy is played with."""

    params: Any
    norms: Any


class Snapshot(NamedTuple):
    """All that a crew would go on from."""

    states: State  # [A, …] of those in training; of a run alone without that axis
    best: Parameters  # [M, …] of all members
    hyper: Hyper  # [M]


@dataclass
class Best:
    """What evaluated best so far, of every member; those no longer in training keep theirs."""

    score: np.ndarray  # [M]
    update: np.ndarray  # [M]
    parameters: Parameters  # leaves [M, …]

    def of(self, member: int) -> Parameters:
        return jax.tree.map(lambda x: x[member], self.parameters)
