"""Gymnasium's worlds as `gymnasium/<id>`, each with one agent, stepped on the host."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces.utils import flatdim, flatten

from jmarl.envs.adapters.host import HostWorlds
from jmarl.envs.adapters.joint_worlds import HostStep
from jmarl.envs.base import EnvSpec, Team
from jmarl.envs.spaces import Box, Discrete, MultiDiscrete, Space
from jmarl.errors import ConfigError, check_bool

AGENT = "agent_0"


class GymnasiumWorld:
    """One world; its observations are flattened."""

    def __init__(self, name: str, world: str, options: Mapping[str, Any]) -> None:
        self.env = gymnasium.make(world, disable_env_checker=True, **options)
        self.spec = self._make_spec(name)

    def _make_spec(self, name: str) -> EnvSpec:
        known, size = self.env.spec, flatdim(self.env.observation_space)
        return EnvSpec(
            name=name,
            agents=(AGENT,),
            teams=(Team("agents", (0,)),),
            obs_sizes=(size,),
            action_spaces=(space_of(self.env.action_space, name),),
            state_size=size,
            episode_length=known.max_episode_steps if known else None,
            dialect="gymnasium",
            on_host=True,
        )

    def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        obs, _ = self.env.reset(seed=seed)
        return self._by_agent(obs), {}

    def step(self, actions: dict[str, Any]) -> HostStep:
        action = native_action(self.env.action_space, actions[AGENT])
        obs, reward, terminated, truncated, _ = self.env.step(action)
        truncated = truncated and not terminated
        ends = ({AGENT: terminated}, {AGENT: truncated})
        return HostStep(self._by_agent(obs), {}, {AGENT: reward}, *ends)

    def close(self) -> None:
        self.env.close()

    def _by_agent(self, obs: Any) -> dict[str, Any]:
        return {AGENT: np.asarray(flatten(self.env.observation_space, obs), np.float64)}


def space_of(space: gymnasium.Space, name: str) -> Space:
    """jmarl's space of Gymnasium's; boxes are flattened."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return MultiDiscrete(tuple(int(n) for n in space.nvec.ravel()))
    if isinstance(space, gymnasium.spaces.Box):
        return Box(tuple(space.low.ravel().tolist()), tuple(space.high.ravel().tolist()))
    raise ConfigError(f"{name} has actions in {space}, which is not supported.")


def native_action(space: gymnasium.Space, action: Any) -> Any:
    """An action as the world's own space has it."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(action) + int(space.start)
    assert space.shape is not None
    return np.asarray(action).reshape(space.shape).astype(space.dtype)


def make(name: str, world: str, options: Mapping[str, Any]) -> HostWorlds:
    """Options: those of `gymnasium.make`, and `processes`, which steps every world in a process of
    its own."""
    chosen = dict(options)
    processes = chosen.pop("processes", False)
    check_bool("processes", processes)
    build = partial(GymnasiumWorld, name, world, chosen)
    try:
        return HostWorlds.of(build, processes)
    except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{name} cannot be built: {reason}") from None
