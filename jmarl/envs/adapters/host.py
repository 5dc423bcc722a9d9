"""Worlds on the host inside compiled programs: one callback per step steps all of them.

Their state in the program is a number, by which the host finds them, and a count of steps, which
puts the callbacks in order. That state cannot be stored: a resumed run begins new episodes.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium.vector import VectorEnv
from jax.experimental import io_callback
from jaxtyping import Array, Int, Key, Num

from jmarl.envs.adapters.joint_worlds import HostWorld, final_views, make_vector
from jmarl.envs.base import EnvSpec, keys_per_world
from jmarl.types import TimeStep, float_dtype

KEPT = 4  # vectors of worlds: of training, evaluations and the last scores


class HostState(struct.PyTreeNode):
    """Which worlds these are, and how often they were stepped."""

    number: Int[Array, ""]
    step: Int[Array, ""]


@dataclass
class Vectors:
    """The vectors of worlds of one `HostWorlds`, by number. Those that begin again from the same
    seeds are the same vector: evaluations do, update after update."""

    make: Callable[[int], VectorEnv]
    known: OrderedDict[int, VectorEnv] = field(default_factory=OrderedDict)
    by_seeds: dict[bytes, int] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(self, seeds: np.ndarray) -> tuple[int, dict[str, np.ndarray]]:
        """New episodes in a vector with these seeds, and its number."""
        with self.lock:
            name = seeds.tobytes()
            if name not in self.by_seeds:
                number = next(self.numbers)
                self.known[number], self.by_seeds[name] = self.make(len(seeds)), number
                self._forget()
            number = self.by_seeds[name]
            views, _ = self[number].reset(seed=seeds.tolist())  # pyright: ignore[reportArgumentType]
            return number, dict(views)

    def __getitem__(self, number: int) -> VectorEnv:
        self.known.move_to_end(number)
        return self.known[number]

    def _forget(self) -> None:
        """Close the vector that was not used for longest."""
        while len(self.known) > KEPT:
            number, vector = self.known.popitem(last=False)
            self.by_seeds = {name: n for name, n in self.by_seeds.items() if n != number}
            vector.close()


@dataclass(frozen=True)
class HostWorlds:
    """E worlds on the host as an `Env`."""

    spec: EnvSpec
    vectors: Vectors = field(compare=False, hash=False, repr=False)

    @classmethod
    def of(cls, make: Callable[[], HostWorld], processes: bool) -> "HostWorlds":
        probe = make()
        spec = probe.spec
        probe.close()
        return cls(spec, Vectors(lambda worlds: make_vector(make, worlds, processes)))

    def reset(self, key: Key[Array, "*worlds"], num_envs: int) -> tuple[HostState, TimeStep]:
        seeds = jax.vmap(lambda k: jax.random.bits(k, dtype=jnp.uint32))
        seeds = seeds(keys_per_world(key, num_envs)) >> 1
        number, seen = io_callback(self._reset, (_number(), self._shapes(num_envs)), seeds)
        return HostState(number, jnp.zeros((), jnp.int32)), TimeStep(**seen)

    def step(
        self, key: Key[Array, "*worlds"], state: HostState, action: Num[Array, "E N *entries"]
    ) -> tuple[HostState, TimeStep]:
        del key  # the worlds draw their own random numbers
        shapes = (_number(), self._shapes(len(action)))
        given = (state.number, state.step, self.spec.clip(action))
        step, seen = io_callback(self._step, shapes, *given)
        return HostState(state.number, step), TimeStep(**seen)

    def _reset(self, seeds: Any) -> tuple[np.int32, dict[str, Any]]:
        number, views = self.vectors.begin(np.asarray(seeds))
        false = np.zeros(len(seeds), bool)
        return np.int32(number), self._seen(views, views, false)

    def _step(self, number: Any, step: Any, action: Any) -> tuple[np.int32, dict[str, Any]]:
        with self.vectors.lock:
            vector = self.vectors[int(number)]
            views, _, _, truncated, infos = vector.step(np.asarray(action, np.float64))
            seen = self._seen(dict(views), final_views(views, infos), truncated)
        return np.int32(step + 1), seen

    def _seen(
        self, views: dict[str, np.ndarray], final: dict[str, np.ndarray], truncated: np.ndarray
    ) -> dict[str, Any]:
        """The fields of a time step."""
        real = np.dtype(float_dtype())
        first, last = (view["obs"].astype(real) for view in (views, final))
        return {
            "obs": first,
            "state": self._state(first),
            "action_mask": views["action_mask"].astype(bool),
            "active": views["active"].astype(bool),
            "reward": final["reward"].astype(real),
            "terminated": final["terminated"].astype(bool),
            "truncated": np.asarray(truncated, bool),
            "final_obs": last,
            "final_state": self._state(last),
            "final_action_mask": final["action_mask"].astype(bool),
        }

    def _state(self, obs: np.ndarray) -> np.ndarray:
        """`[E, S]`: all agents' observations without padding."""
        sizes = enumerate(self.spec.obs_sizes)
        return np.concatenate([obs[:, i, :size] for i, size in sizes], axis=1)

    def _shapes(self, num_envs: int) -> dict[str, jax.ShapeDtypeStruct]:
        spec, real = self.spec, float_dtype()
        n, flags = (num_envs, spec.num_agents), (num_envs, *spec.action_mask.shape)
        obs, state = (*n, spec.obs_size), (num_envs, spec.state_size)
        of = jax.ShapeDtypeStruct
        views = {"obs": of(obs, real), "state": of(state, real), "action_mask": of(flags, bool)}
        ends = {"active": of(n, bool), "reward": of(n, real), "terminated": of(n, bool)}
        final = {f"final_{name}": shape for name, shape in views.items()}
        return views | ends | {"truncated": of((num_envs,), bool)} | final


def _number() -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((), jnp.int32)
