"""Several runs as one program: members differ in seed and hyperparameters, along a leading axis
M."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.learning.collectives import world_axis
from jmarl.learning.trainer import Trainer
from jmarl.types import Metrics, TrainState


@dataclass(frozen=True)
class VmappedTrainer:
    """`vmap` of a trainer's functions. Pure; `jit` is the caller's."""

    trainer: Trainer

    def init(self, keys: jax.Array) -> TrainState:
        """`keys` `[M]`."""
        return jax.vmap(self.trainer.init, out_axes=self.axes)(keys)

    def step_alike(self, states: TrainState, hyper: Any) -> tuple[TrainState, Metrics]:
        """`hyper` of all learners of a member, with leaves `[M]`, or numbers that members share."""
        each = jax.tree.map(lambda x: 0 if jnp.ndim(x) else None, hyper)
        axes = {"in_axes": (self.axes, each), "out_axes": (self.axes, 0)}
        return jax.vmap(self.trainer.step_alike, **axes)(states, hyper)

    @cached_property
    def axes(self) -> TrainState:
        """The member axis of every leaf: 0, or None for what members share. Where all worlds are
        at the same step of their episodes, members share its counter: as an array, it would make
        `cond` a `select`, and every step would also compute a reset."""
        few = self.trainer.shapes
        axes = jax.tree.map(lambda _: 0, few)
        if not self.trainer.env.spec.in_step:
            return axes
        many = self._twice_as_many_worlds
        own = jax.tree.map(lambda a, b: None if world_axis(a, b) is None else 0, few.env, many.env)
        return axes.replace(env=own)

    def with_member_axis(self, states: TrainState, members: int) -> TrainState:
        """The same states, in which members share nothing."""

        def own(axis: int | None, x: Any) -> Any:
            if axis is not None or x is None:
                return x
            return jnp.broadcast_to(x, (members, *x.shape))

        return jax.tree.map(own, self.axes, states, is_leaf=lambda x: x is None)

    def stack(self, states: Sequence[TrainState]) -> TrainState:
        """Stacks states without a member axis."""
        return self._each(lambda *own: jnp.stack(own), *states)

    def join(self, batches: Sequence[TrainState]) -> TrainState:
        """Concatenates batches of members."""
        return self._each(lambda *parts: jnp.concatenate(parts), *batches)

    def take(self, states: TrainState, members: int | np.ndarray) -> TrainState:
        """The given members, in that order; a single number gives a state without member axis."""
        return self._each(lambda x: x[members], states)

    def exploit(self, states: TrainState, source: np.ndarray) -> TrainState:
        """Every member goes on with what member `source[i]` has learned, in its own worlds and
        with its own random streams. Leaves with an axis of worlds, such as running sums of rewards,
        stay with their worlds."""
        few, many = self.trainer.shapes, self._twice_as_many_worlds

        def learned(a: Any, b: Any, own: jax.Array, other: jax.Array) -> jax.Array:
            return other if world_axis(a, b) is None else own

        other = self.take(states, source)
        parts = (few.learners, many.learners, states.learners, other.learners)
        return states.replace(policies=other.policies, learners=jax.tree.map(learned, *parts))

    @property
    def _twice_as_many_worlds(self) -> TrainState:
        """Shapes."""
        return replace(self.trainer, num_envs=2 * self.trainer.num_envs).shapes

    def _each(self, change: Callable[..., jax.Array], *states: TrainState) -> TrainState:
        """Applies `change` to the leaves with a member axis. Shared leaves are the first
        state's, copied, because a step donates its state's buffers."""

        def one(axis: int | None, first: Any, *others: Any) -> Any:
            if first is None:
                return None
            return jnp.copy(first) if axis is None else change(first, *others)

        return jax.tree.map(one, self.axes, *states, is_leaf=lambda x: x is None)
