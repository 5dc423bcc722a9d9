"""The environment protocol: an `Env` is a batch of worlds that step together."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.envs import spaces
from jmarl.envs.spaces import Box, Space
from jmarl.errors import ConfigError, unknown
from jmarl.types import TimeStep


class Team(NamedTuple):
    """Agents that share an interest; teams partition the agents of a world."""

    name: str
    agents: tuple[int, ...]


def feature_mask(obs_sizes: Sequence[int]) -> np.ndarray:
    """`[N, O]` bool: True where an observation entry is the agent's own, False on padding."""
    return np.arange(max(obs_sizes)) < np.array(obs_sizes)[:, None]


@dataclass(frozen=True)
class EnvSpec:
    """What is fixed about a world: names, sizes, spaces. Static under `jit`, so hashable."""

    name: str
    agents: tuple[str, ...]
    teams: tuple[Team, ...]
    obs_sizes: tuple[int, ...]
    action_spaces: tuple[Space, ...]
    state_size: int
    episode_length: int | None  # steps until truncation; None: the world alone decides
    dialect: str  # whose rules: "mpe2", "onpolicy", "jaxmarl", …
    varying_action_mask: bool = False  # whether TimeStep.action_mask ever differs from action_mask
    winnable: bool = False  # whether TimeStep.won says who won
    agents_leave: bool = True  # whether an agent may be out before its world's episode ends
    in_step: bool = False  # all worlds are always at the same step of their episodes

    @property
    def num_agents(self) -> int:
        return len(self.agents)

    @property
    def cooperative(self) -> bool:
        return len(self.teams) == 1

    @property
    def obs_size(self) -> int:
        """O: the widest agent's; the others are padded with zeros at the end."""
        return max(self.obs_sizes)

    @cached_property
    def action_space(self) -> Space:
        """The padded space of the joint action array."""
        return spaces.cover(self.action_spaces)

    @cached_property
    def obs_mask(self) -> np.ndarray:
        """[N, O] bool: True where an observation entry is the agent's own, False on padding."""
        return feature_mask(self.obs_sizes)

    @cached_property
    def action_mask(self) -> np.ndarray:
        """[N, A] bool: True where an action entry is the agent's own, False on padding."""
        return np.stack([spaces.mask(space, self.action_space) for space in self.action_spaces])

    @cached_property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest values `[N, D]` of continuous actions; padding must be 0."""
        own = [space for space in self.action_spaces if isinstance(space, Box)]
        low, high = np.zeros((2, len(own), self.action_space.size))
        for i, space in enumerate(own):
            low[i, : space.size], high[i, : space.size] = space.low, space.high
        return low, high

    def clip(self, action: jax.Array) -> jax.Array:
        """Continuous actions `[E, N, D]` within each agent's bounds; others as they are. Worlds
        call this before anything else, so that all treat an action out of bounds alike."""
        if not isinstance(self.action_space, Box):
            return action
        low, high = (side.astype(action.dtype)[None] for side in self.action_bounds)
        return jnp.clip(action, low, high)

    @property
    def always_legal(self) -> bool:
        """Everybody may always do everything: nobody needs to look at masks."""
        return not self.varying_action_mask and bool(self.action_mask.all())


class Env(Protocol):
    """A batch of worlds as pure functions. `state` is the world's own pytree.

    `key` is one key, or `[E]` keys, one for each world. What happens in a world then depends on its
    own key only, not on the worlds beside it: a run is the same however many devices share it."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: jax.Array, num_envs: int) -> tuple[Any, TimeStep]: ...

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        """One step of all worlds. A world that ends begins anew within the same step:
        `obs` is then the first of the new episode and `final_obs` the last of the old."""
        ...


def keys_per_world(key: jax.Array, num_envs: int) -> jax.Array:
    """`[E]` keys: as given, or split from one."""
    return key if key.ndim else jax.random.split(key, num_envs)


# Family prefix → the module whose `make(name, **options)` builds its worlds, imported on demand:
# jaxmarl and gymnax cost seconds.
FAMILIES = {
    "mpe": "jmarl.envs.mpe",
    "probe": "jmarl.envs.probe",
    "jaxmarl": "jmarl.envs.adapters.jaxmarl",
    "gymnax": "jmarl.envs.adapters.gymnax",
    "playground": "jmarl.envs.adapters.brax",
    "brax": "jmarl.envs.adapters.brax",
    "dm_control": "jmarl.envs.adapters.brax",
}


def make(name: str, **options: Any) -> Env:
    """Build the world `family/name`, for example `make("mpe/simple_spread", num_agents=5)`."""
    family, slash, rest = name.partition("/")
    if not slash or not rest:
        hint = ", ".join(f"{prefix}/…" for prefix in FAMILIES)
        raise ConfigError(
            f"environment {name!r} has no family: write family/name, such as "
            f"mpe/{name or 'simple_spread'}. Families: {hint}."
        )
    if family not in FAMILIES:
        raise unknown("environment family", family, FAMILIES)
    return importlib.import_module(FAMILIES[family]).make(name, rest, options)
