"""The environment protocol: an `Env` is a batch of worlds that step together."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, Num, PyTree

from jmarl.envs import spaces
from jmarl.envs.spaces import Box, Space
from jmarl.errors import ConfigError, unknown
from jmarl.plugins import load_installed
from jmarl.registry import FAMILIES, WORLDS, resolve
from jmarl.types import TimeStep

ON_HOST = ("gymnasium", "pettingzoo")  # families whose worlds Python steps


class Team(NamedTuple):
    """Agents that share an interest; teams partition the agents of a world."""

    name: str
    agents: tuple[int, ...]


def feature_mask(obs_sizes: Sequence[int]) -> Bool[np.ndarray, "N O"]:
    """True where an observation entry is the agent's own, False on padding."""
    return np.arange(max(obs_sizes)) < np.array(obs_sizes)[:, None]


@dataclass(frozen=True)
class EnvSpec:
    """The static description of a world: names, sizes, spaces. Static under `jit`, so hashable."""

    name: str
    agents: tuple[str, ...]
    teams: tuple[Team, ...]
    obs_sizes: tuple[int, ...]
    action_spaces: tuple[Space, ...]
    state_size: int
    episode_length: int | None  # steps until truncation; None: no fixed limit
    dialect: str  # the code whose rules apply: "mpe2", "onpolicy", "jaxmarl", …
    varying_action_mask: bool = False  # TimeStep.action_mask may differ from `action_mask`
    winnable: bool = False  # TimeStep.won is set
    agents_leave: bool = True  # an agent may terminate before its world's episode ends
    in_step: bool = False  # all worlds are always at the same step of their episodes
    on_host: bool = False  # Python steps the worlds; a checkpoint cannot hold them
    # (height, width, channels), where every agent's observation is such an image, flattened
    obs_shape: tuple[int, ...] | None = None

    @property
    def num_agents(self) -> int:
        return len(self.agents)

    @property
    def cooperative(self) -> bool:
        return len(self.teams) == 1

    @property
    def obs_size(self) -> int:
        """O: that of the largest observation; smaller ones are padded with zeros at the end."""
        return max(self.obs_sizes)

    @cached_property
    def action_space(self) -> Space:
        """The padded space of the joint action array."""
        return spaces.cover(self.action_spaces)

    @cached_property
    def obs_mask(self) -> Bool[np.ndarray, "N O"]:
        """True where an observation entry is the agent's own, False on padding."""
        return feature_mask(self.obs_sizes)

    @cached_property
    def action_mask(self) -> Bool[np.ndarray, "N A"]:
        """True where an action entry is the agent's own, False on padding."""
        return np.stack([spaces.mask(space, self.action_space) for space in self.action_spaces])

    @cached_property
    def action_bounds(self) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, "N D"]]:
        """Lowest and highest values of continuous actions; padding must be 0."""
        boxes = [space for space in self.action_spaces if isinstance(space, Box)]
        low, high = np.zeros((2, len(boxes), self.action_space.size))
        for i, space in enumerate(boxes):
            low[i, : space.size], high[i, : space.size] = space.low, space.high
        return low, high

    def clip(self, action: Num[Array, "E N *entries"]) -> Num[Array, "E N *entries"]:
        """Clip continuous actions `[E, N, D]` to each agent's bounds; return others unchanged.
        Every world calls this first, so all treat actions out of bounds alike."""
        chex.assert_shape(action, (None, self.num_agents, *self.action_space.shape))
        if not isinstance(self.action_space, Box):
            return action
        low, high = (side.astype(action.dtype)[None] for side in self.action_bounds)
        return jnp.clip(action, low, high)

    @property
    def always_legal(self) -> bool:
        """Every action of every agent is always legal, so masks are not needed."""
        return not self.varying_action_mask and bool(self.action_mask.all())


class Env(Protocol):
    """A batch of worlds as pure functions. `state` is a pytree that only the env interprets.

    `key` is one key, or `[E]` keys, one per world. With one key per world, a world depends only on
    its own key, not on the other worlds of the batch, so a run does not depend on the number of
    devices."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: Key[Array, "*worlds"], num_envs: int) -> tuple[PyTree, TimeStep]: ...

    def step(
        self, key: Key[Array, "*worlds"], state: PyTree, action: Num[Array, "E N *entries"]
    ) -> tuple[PyTree, TimeStep]:
        """One step of all worlds. A world whose episode ends resets within the same step: `obs` is
        then the first observation of the next episode and `final_obs` the last of the previous."""
        ...


def keys_per_world(key: Key[Array, "*worlds"], num_envs: int) -> Key[Array, " E"]:
    """`[E]` keys as given, or split from one key."""
    if key.ndim:
        chex.assert_shape(key, (num_envs,))
        return key
    return jax.random.split(key, num_envs)


def steps_on_host(name: str) -> bool:
    """Whether Python steps the worlds of that name."""
    return name.partition("/")[0] in ON_HOST


def make(name: str, **options: Any) -> Env:
    """Build the env `family/name`, for example `make("mpe/simple_spread", num_agents=5)`."""
    load_installed()
    if name in WORLDS:
        return _registered(name, options)
    family, slash, rest = name.partition("/")
    if not slash or not rest:
        hint = ", ".join([*(f"{prefix}/…" for prefix in FAMILIES), *WORLDS])
        raise ConfigError(
            f"environment {name!r} has no family: write family/name, such as "
            f"mpe/{name or 'simple_spread'}. Families: {hint}."
        )
    if family not in FAMILIES:
        own = [known for known in WORLDS if known.partition("/")[0] == family]
        if own:
            raise unknown("environment", name, own)
        families = {known.partition("/")[0] for known in (*FAMILIES, *WORLDS)}
        raise ConfigError(
            f"{unknown('environment family', family, families)} If a plug-in registers it, name "
            "that with --plugin."
        )
    return resolve(FAMILIES[family])(name, rest, options)


def _registered(name: str, options: dict[str, Any]) -> Env:
    factory = resolve(WORLDS[name])
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise ConfigError(f"options of {name}: {error}.") from None
    made = factory(**options)
    for part in ("spec", "reset", "step"):
        if not hasattr(made, part):
            raise ConfigError(
                f"{name}: what its factory returns is no environment: it has no {part!r}."
            )
    return made
