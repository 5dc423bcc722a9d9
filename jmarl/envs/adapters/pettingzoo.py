"""PettingZoo's parallel environments as `pettingzoo/<module>`, stepped on the host."""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces.utils import flatdim, flatten

from jmarl.envs.adapters.gymnasium import native_action, space_of
from jmarl.envs.adapters.host import HostWorlds
from jmarl.envs.adapters.joint_worlds import MASK, HostStep
from jmarl.envs.base import EnvSpec, Team
from jmarl.errors import ConfigError, check_bool, check_int

OBSERVATION = "observation"  # the key beside MASK, where observations are dictionaries
LENGTHS = ("max_cycles", "max_episode_steps", "episode_length")  # attributes that say it


class PettingZooWorld:
    """One world; its observations are flattened."""

    def __init__(
        self,
        name: str,
        build: Callable[..., Any],
        options: Mapping[str, Any],
        episode_length: int | None,
    ) -> None:
        self.env = build(**options)
        self.agents = tuple(self.env.possible_agents)
        self.spaces = {agent: _viewed(self.env.observation_space(agent)) for agent in self.agents}
        self.action_spaces = {agent: self.env.action_space(agent) for agent in self.agents}
        self.spec = self._make_spec(name, episode_length)
        self._step = 0

    def _make_spec(self, name: str, episode_length: int | None) -> EnvSpec:
        sizes = tuple(flatdim(self.spaces[agent]) for agent in self.agents)
        _, infos = self.env.reset(seed=0)
        masked = any(
            MASK in infos.get(agent, {}) or _has_mask(self.env.observation_space(agent))
            for agent in self.agents
        )
        return EnvSpec(
            name=name,
            agents=self.agents,
            teams=_teams(self.env, self.agents),
            obs_sizes=sizes,
            action_spaces=tuple(space_of(self.action_spaces[agent], name) for agent in self.agents),
            state_size=sum(sizes),
            episode_length=episode_length or _length(self.env),
            dialect="pettingzoo",
            varying_action_mask=masked,
            on_host=True,
        )

    def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        self._step = 0
        return self._split(*self.env.reset(seed=seed))

    def step(self, actions: dict[str, Any]) -> HostStep:
        native = {
            agent: native_action(self.action_spaces[agent], action)
            for agent, action in actions.items()
        }
        obs, reward, terminated, truncated, infos = self.env.step(native)
        self._step += 1
        limit = self.spec.episode_length
        if limit is not None and self._step >= limit:
            truncated = {agent: not terminated.get(agent, False) for agent in actions}
        return HostStep(*self._split(obs, infos), reward, terminated, truncated)

    def close(self) -> None:
        self.env.close()

    def _split(
        self, obs: Mapping[str, Any], infos: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Flat observations, and masks where there are any."""
        views, masks = {}, {}
        for agent, seen in obs.items():
            space = self.env.observation_space(agent)
            own = seen[OBSERVATION] if _has_mask(space) else seen
            views[agent] = np.asarray(flatten(self.spaces[agent], own), np.float64)
            mask = seen[MASK] if _has_mask(space) else infos.get(agent, {}).get(MASK)
            if mask is not None:
                masks[agent] = np.asarray(mask).ravel().astype(np.int8)
        return views, masks


def _has_mask(space: gymnasium.Space) -> bool:
    return isinstance(space, gymnasium.spaces.Dict) and {OBSERVATION, MASK} <= set(space.spaces)


def _viewed(space: gymnasium.Space) -> gymnasium.Space:
    """What an agent sees, without its mask."""
    return space[OBSERVATION] if _has_mask(space) else space  # pyright: ignore


def _teams(env: Any, agents: tuple[str, ...]) -> tuple[Team, ...]:
    """The world's own attribute `teams`, agents by name of the team; else one team."""
    named = getattr(env.unwrapped, "teams", None)
    if not isinstance(named, Mapping):
        return (Team("agents", tuple(range(len(agents)))),)
    return tuple(Team(name, tuple(map(agents.index, own))) for name, own in named.items())


def _length(env: Any) -> int | None:
    found = (getattr(env.unwrapped, name, None) for name in LENGTHS)
    return next((int(length) for length in found if isinstance(length, int)), None)


def make(name: str, world: str, options: Mapping[str, Any]) -> HostWorlds:
    """`world`: a module with a function `parallel_env`, or `module:function`. Options: those of
    that function; `episode_length`, which cuts episodes; and `processes`, which steps every world
    in a process of its own."""
    chosen = dict(options)
    processes, length = chosen.pop("processes", False), chosen.pop("episode_length", None)
    check_bool("processes", processes)
    if length is not None:
        check_int("episode_length", length, low=1)
    module, _, function = world.partition(":")
    try:
        build = getattr(importlib.import_module(module), function or "parallel_env")
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{name} cannot be imported: {error}.") from None
    try:
        return HostWorlds.of(partial(PettingZooWorld, name, build, chosen, length), processes)
    except (TypeError, ValueError, AssertionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{name} cannot be built: {reason}") from None
