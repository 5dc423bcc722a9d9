"""Several runs as one program: members differ in seed and hyperparameters, on a leading axis M."""

from dataclasses import dataclass
from typing import Any

import jax

from jmarl.envs.mpe import Mpe
from jmarl.evaluation import Episodes, play_episodes
from jmarl.objective import Hyper
from jmarl.trainer import Trainer
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
        each = jax.tree.map(lambda x: 0 if jax.numpy.ndim(x) else None, hyper)
        step = jax.vmap(self.trainer.step, in_axes=(self.axes, each), out_axes=(self.axes, 0))
        return step(states, hyper)

    def play(self, states: State, keys: jax.Array, episodes: int) -> Episodes:
        """Greedy episodes of every member, `[M, episodes, …]`."""
        trainer = self.trainer

        def score(params: Any, norms: Any, key: jax.Array) -> Episodes:
            return play_episodes(trainer.env, trainer.groups, params, key, episodes, norms=norms)

        return jax.vmap(score)(states.params, states.normalisers, keys)

    @property
    def axes(self) -> State:
        """0 for what members have of their own. Particle worlds of all members are at the same step
        of their episodes: were that counter an array, every step would also compute a reset."""
        axes = jax.tree.map(lambda _: 0, self.trainer.shapes)
        return axes.replace(env=axes.env.replace(step=None)) if self._in_step else axes

    @property
    def _in_step(self) -> bool:
        return isinstance(self.trainer.env, Mpe)
