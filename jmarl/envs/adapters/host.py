"""Worlds on the host inside compiled programs: one callback per step steps all of them.

Their state in the program is a number, by which the host finds them, and a count of steps, which
puts the callbacks in order. That state cannot be stored: a resumed run begins new episodes.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium.vector import VectorEnv
from jax import lax
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Array, Float, Int, Key, Num

from jmarl.envs.adapters.joint_worlds import HostWorld, final_views, make_vector
from jmarl.envs.base import EnvSpec, keys_per_world
from jmarl.errors import ConfigError
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
        number, seen = call_host(self._reset, (_number(), self._shapes(num_envs)), seeds)
        return HostState(number, jnp.zeros((), jnp.int32)), self._time_step(seen)

    def step(
        self, key: Key[Array, "*worlds"], state: HostState, action: Num[Array, "E N *entries"]
    ) -> tuple[HostState, TimeStep]:
        del key  # the worlds draw their own random numbers
        shapes = (_number(), self._shapes(len(action)))
        given = (state.number, state.step, self.spec.clip(action))
        step, seen = call_host(self._step, shapes, *given)
        return HostState(state.number, step), self._time_step(seen)

    def _reset(self, seeds: Any) -> tuple[np.int32, dict[str, Any]]:
        number, views = self.vectors.begin(np.asarray(seeds))
        false = np.zeros(len(seeds), bool)
        return np.int32(number), self._seen(views, views, false)

    def _step(self, number: Any, step: Any, action: Any) -> tuple[np.int32, dict[str, Any]]:
        with self.vectors.lock:
            vector = self.vectors[int(number)]
            views, _, _, truncated, infos = vector.step(np.array(action, np.float64))
            seen = self._seen(dict(views), final_views(views, infos), truncated)
        return np.int32(int(step) + 1), seen

    def _seen(
        self, views: dict[str, np.ndarray], final: dict[str, np.ndarray], truncated: np.ndarray
    ) -> dict[str, np.ndarray]:
        """What only the host knows of a time step. Every array takes time to hand over. They are
        copies: the vector writes into its own again."""
        real = np.dtype(float_dtype())
        seen = {
            "obs": views["obs"].astype(real),
            "active": views["active"].astype(bool),
            "reward": final["reward"].astype(real),
            "terminated": final["terminated"].astype(bool),
            "truncated": np.array(truncated, bool),
            "final_obs": final["obs"].astype(real),
        }
        if self.spec.varying_action_mask:
            seen["action_mask"] = views["action_mask"].astype(bool)
            seen["final_action_mask"] = final["action_mask"].astype(bool)
        return seen

    def _time_step(self, seen: dict[str, Any]) -> TimeStep:
        """Completed by what follows from it."""
        given: dict[str, Any] = {
            "state": self._state(seen["obs"]),
            "final_state": self._state(seen["final_obs"]),
        }
        if not self.spec.varying_action_mask:
            worlds, mask = len(seen["obs"]), jnp.asarray(self.spec.action_mask)
            every = jnp.broadcast_to(mask, (worlds, *mask.shape))
            given |= {"action_mask": every, "final_action_mask": every}
        return TimeStep(**seen, **given)

    def _state(self, obs: Float[Array, "E N O"]) -> Float[Array, "E S"]:
        """All agents' observations without padding."""
        sizes = enumerate(self.spec.obs_sizes)
        return jnp.concatenate([obs[:, i, :size] for i, size in sizes], axis=1)

    def _shapes(self, num_envs: int) -> dict[str, jax.ShapeDtypeStruct]:
        spec, real, of = self.spec, float_dtype(), jax.ShapeDtypeStruct
        n = (num_envs, spec.num_agents)
        obs, mask = of((*n, spec.obs_size), real), of((num_envs, *spec.action_mask.shape), bool)
        masks = {"action_mask": mask, "final_action_mask": mask}
        return {
            "obs": obs,
            "active": of(n, bool),
            "reward": of(n, real),
            "terminated": of(n, bool),
            "truncated": of((num_envs,), bool),
            "final_obs": obs,
            **(masks if spec.varying_action_mask else {}),
        }


def call_host(function: Callable[..., Any], shapes: Any, *given: Array) -> Any:
    """`function`, from arrays to arrays of these shapes, called by the compiled program. On a CPU
    it reads the program's own memory and writes into it: `io_callback`, which other devices need,
    takes ten times as long."""

    def call(context: Any, out: Any, *buffers: Any) -> None:
        results = function(*map(np.asarray, buffers))
        for buffer, result in zip(jax.tree.leaves(out), jax.tree.leaves(results), strict=True):
            np.asarray(buffer)[...] = result

    @custom_vmap
    def called(*given: Array) -> Any:
        return lax.platform_dependent(
            *given,
            cpu=buffer_callback(call, shapes, has_side_effect=True),
            default=lambda *given: io_callback(function, shapes, *given),
        )

    called.def_vmap(_refuse_vmap)
    return called(*given)


def _refuse_vmap(*_: Any) -> NoReturn:
    raise ConfigError(
        "vmap cannot batch worlds that Python steps: `reset` makes as many worlds as are needed, "
        "and runs train one at a time."
    )


def _number() -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((), jnp.int32)
