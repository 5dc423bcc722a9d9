"""The one learner interface: what a trainer needs of an algorithm."""

from typing import Any, NamedTuple, Protocol, TypeVar

import jax

from jmarl.learning.collectives import Layout
from jmarl.types import Metrics, Params, Trajectory

S = TypeVar("S")
H = TypeVar("H", contravariant=True)


class Learned(NamedTuple):
    """What a learner returns."""

    params: Params
    state: Any
    metrics: Metrics  # scalars; with several players the trainer adds the player's name


class Learner(Protocol[S, H]):
    """Trains one player's policy. Pure: its policy and its static options are fields, everything
    that changes goes in and comes out. `S` is its state, `H` its traced hyperparameters."""

    @property
    def sequence_length(self) -> int | None:
        """Steps between the memories that `Trajectory.starts` has; None: the whole rollout."""
        ...

    def init(self, key: jax.Array, params: Params, num_envs: int) -> S: ...

    def learn(
        self,
        params: Params,
        state: S,
        played: Trajectory,
        key: jax.Array,
        hyper: H,
        progress: jax.Array,
        layout: Layout,
    ) -> Learned:
        """One update from one rollout. `progress` is the part of training that is done, in
        [0, 1). With several shards, `played` is one shard's and `layout` sums over all."""
        ...


class Fixed(NamedTuple):
    """A learner that learns nothing: its player acts and stays as it is."""

    sequence_length: int | None = None

    def init(self, key: jax.Array, params: Params, num_envs: int) -> tuple[()]:
        del key, params, num_envs
        return ()

    def learn(
        self,
        params: Params,
        state: tuple[()],
        played: Trajectory,
        key: jax.Array,
        hyper: Any,
        progress: jax.Array,
        layout: Layout,
    ) -> Learned:
        del played, key, hyper, progress, layout
        return Learned(params, state, {})
