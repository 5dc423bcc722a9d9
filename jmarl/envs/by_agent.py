"""Dictionaries by agent, as PettingZoo and JaxMARL have them, to padded arrays and back.

Arrays are numpy's or jax's; results are of the same kind. Leading axes are free.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Num, Shaped

from jmarl.envs import spaces
from jmarl.envs.base import EnvSpec
from jmarl.envs.spaces import Box, Space
from jmarl.errors import ConfigError

AnyArray = Any  # numpy's or jax's


def joint_obs(spec: EnvSpec, obs: Mapping[str, AnyArray]) -> Num[AnyArray, "*worlds N O"]:
    """Observations `[…, O_i]` as one array, padded with zeros; zeros also for agents that are
    absent."""
    worlds, xp = _of_some(spec, "observations", obs)
    padded = []
    for agent, size in zip(spec.agents, spec.obs_sizes, strict=True):
        own = obs[agent] if agent in obs else xp.zeros((*worlds, size))
        if own.shape != (*worlds, size):
            raise ConfigError(
                f"the observation of {agent} has shape {own.shape}, not {(*worlds, size)}."
            )
        padded.append(_padded(own, spec.obs_size))
    return xp.stack(padded, -2)


def own_obs(
    spec: EnvSpec, obs: Num[AnyArray, "*worlds N O"]
) -> dict[str, Num[AnyArray, "*worlds _"]]:
    """Each agent's observation, without padding."""
    return {
        agent: obs[..., i, :size]
        for i, (agent, size) in enumerate(zip(spec.agents, spec.obs_sizes, strict=True))
    }


def joint_action(spec: EnvSpec, actions: Mapping[str, AnyArray]) -> Num[AnyArray, "..."]:
    """Every agent's action of its own space as one array of the padded space."""
    check_all(spec, "actions", actions)
    xp = actions[spec.agents[0]].__array_namespace__()
    padded = spec.action_space
    parts = []
    for agent, space in zip(spec.agents, spec.action_spaces, strict=True):
        own = actions[agent]
        if padded.shape and not space.shape:
            own = own[..., None]
        parts.append(_padded(own, padded.shape[0]) if padded.shape else own)
    return xp.stack(parts, -1 - len(padded.shape))


def own_action(spec: EnvSpec, action: Num[AnyArray, "..."]) -> dict[str, Num[AnyArray, "..."]]:
    """Each agent's action of its own space."""
    by_agent = {}
    for i, (agent, space) in enumerate(zip(spec.agents, spec.action_spaces, strict=True)):
        own = action[..., i, :] if spec.action_space.shape else action[..., i]
        by_agent[agent] = _unpadded(own, space, spec.action_space)
    return by_agent


def own_mask(
    spec: EnvSpec, mask: Shaped[AnyArray, "*worlds N A"]
) -> dict[str, Shaped[AnyArray, "*worlds _"]]:
    """The flags of the entries that each agent's space has."""
    return {
        agent: mask[..., i, :][..., spaces.entries(space, spec.action_space)]
        for i, (agent, space) in enumerate(zip(spec.agents, spec.action_spaces, strict=True))
    }


def joint_mask(spec: EnvSpec, masks: Mapping[str, AnyArray]) -> Shaped[AnyArray, "*worlds N A"]:
    """Flags of each agent's own entries as one array; for absent agents everything is legal."""
    worlds, xp = _of_some(spec, "action masks", masks)
    rows = []
    for i, agent in enumerate(spec.agents):
        row = xp.broadcast_to(xp.asarray(spec.action_mask[i]), (*worlds, spec.action_space.size))
        if agent in masks:
            own = spaces.entries(spec.action_spaces[i], spec.action_space)
            place = np.eye(spec.action_space.size)[own]  # one row per own entry
            row = row & ((1 - masks[agent]) @ place == 0)
        rows.append(row)
    return xp.stack(rows, -2)


def _of_some(
    spec: EnvSpec, what: str, given: Mapping[str, AnyArray]
) -> tuple[tuple[int, ...], ModuleType]:
    """The leading axes of what some agents have, and the module of its arrays."""
    _check_known(spec, what, given)
    some = next(iter(given.values()), None)
    if some is None:
        raise ConfigError(f"{what} are given for nobody; {spec.name} has {', '.join(spec.agents)}.")
    return some.shape[:-1], some.__array_namespace__()


def check_all(spec: EnvSpec, what: str, given: Mapping[str, Any]) -> None:
    """Refuse a dictionary that has not exactly the world's agents."""
    _check_known(spec, what, given)
    if missing := [agent for agent in spec.agents if agent not in given]:
        raise ConfigError(
            f"{what} lack {', '.join(missing)}; {spec.name} has {', '.join(spec.agents)}."
        )


def _check_known(spec: EnvSpec, what: str, given: Mapping[str, Any]) -> None:
    if extra := [repr(agent) for agent in given if agent not in spec.agents]:
        raise ConfigError(
            f"{what} are given for {', '.join(extra)}; {spec.name} has {', '.join(spec.agents)}."
        )


def _padded(x: AnyArray, size: int) -> AnyArray:
    """Zeros at the end of the last axis."""
    if x.shape[-1] == size:
        return x
    axes = [(0, 0)] * (x.ndim - 1) + [(0, size - x.shape[-1])]
    return x.__array_namespace__().pad(x, axes)


def _unpadded(action: AnyArray, space: Space, padded: Space) -> AnyArray:
    if isinstance(space, Box) or space.shape:
        return action[..., : space.shape[0]]
    return action[..., 0] if padded.shape else action
