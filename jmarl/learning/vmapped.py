"""Several runs as one program: members differ in seed and hyperparameters, on a leading axis M."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.learning.collectives import world_axis
from jmarl.learning.ppo_loss import Hyper
from jmarl.learning.trainer import Trainer
from jmarl.types import Metrics, State


@dataclass(frozen=True)
class Population:
    """`vmap` of one trainer's functions. Pure; `jit` is the caller's."""

    trainer: Trainer

    def init(self, keys: jax.Array) -> State:
        """`keys` `[M]`."""
        return jax.vmap(self.trainer.init, out_axes=self.axes)(keys)

    def step(self, states: State, hyper: Hyper) -> tuple[State, Metrics]:
        """`hyper` with leaves `[M]`, or numbers that all members share."""
        each = jax.tree.map(lambda x: 0 if jnp.ndim(x) else None, hyper)
        step = jax.vmap(self.trainer.step, in_axes=(self.axes, each), out_axes=(self.axes, 0))
        return step(states, hyper)

    @cached_property
    def axes(self) -> State:
        """0 for what members have of their own. Where all worlds are in step, members share what
        worlds share, the counter of steps: as an array, it would have every step compute a reset
        too."""
        few = self.trainer.shapes
        axes = jax.tree.map(lambda _: 0, few)
        if not self.trainer.env.spec.in_step:
            return axes
        many = replace(self.trainer, num_envs=2 * self.trainer.num_envs).shapes
        own = jax.tree.map(lambda a, b: None if world_axis(a, b) is None else 0, few.env, many.env)
        return axes.replace(env=own)

    def stack(self, alone: Sequence[State]) -> State:
        """States without a member axis, side by side."""
        return self._each(lambda *own: jnp.stack(own), *alone)

    def join(self, batches: Sequence[State]) -> State:
        """Batches of members, one after the other."""
        return self._each(lambda *parts: jnp.concatenate(parts), *batches)

    def take(self, states: State, members: int | np.ndarray) -> State:
        """Some members, in the given order; a single number gives a state without member axis."""
        return self._each(lambda x: x[members], states)

    def _each(self, change: Callable[..., jax.Array], *states: State) -> State:
        """What members have of their own, changed; what they share is the first's, copied, for a
        step takes the memory of its state."""

        def one(axis: int | None, first: Any, *others: Any) -> Any:
            if first is None:
                return None
            return jnp.copy(first) if axis is None else change(first, *others)

        return jax.tree.map(one, self.axes, *states, is_leaf=lambda x: x is None)
