"""A policy in Farama's mpe2 itself: the numpy original, one world after the other."""

import importlib
import importlib.util
import logging
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jmarl.envs.spaces import Box, MultiDiscrete
from jmarl.errors import ConfigError
from jmarl.evaluation.trained_policy import TrainedPolicy
from jmarl.learning.episodes import Episodes

VERSIONS = {
    "simple": "simple_v3",
    "simple_spread": "simple_spread_v3",
    "simple_reference": "simple_reference_v3",
    "simple_speaker_listener": "simple_speaker_listener_v4",
    "simple_adversary": "simple_adversary_v3",
    "simple_push": "simple_push_v3",
    "simple_tag": "simple_tag_v3",
    "simple_crypto": "simple_crypto_v3",
    "simple_world_comm": "simple_world_comm_v3",
}
# jmarl's option → mpe2's, where the names differ
NAMES = {"num_agents": "N", "episode_length": "max_cycles"}
ONLY_NATIVE = ("agent_ids", "dialect", "num_landmarks", "actions")


def make_worlds(env: str, options: Mapping[str, Any], continuous: bool, count: int) -> list[Any]:
    """mpe2's parallel environments for jmarl's name and options."""
    family, _, scenario = env.partition("/")
    if family != "mpe" or scenario not in VERSIONS:
        raise ConfigError(
            f"world='mpe2' cannot play {env!r}; it has mpe/{', mpe/'.join(VERSIONS)}."
        )
    if importlib.util.find_spec("mpe2") is None:
        raise ConfigError(
            "world='mpe2' needs the 'mpe2' extra, which is not installed: "
            'pip install "jmarl[mpe2]".'
        )
    if strange := [name for name in options if name in ONLY_NATIVE]:
        raise ConfigError(f"world='mpe2' has no option {strange[0]!r}.")
    names = {**NAMES, "num_good": "N"} if scenario == "simple_adversary" else NAMES
    module = importlib.import_module(f"mpe2.{VERSIONS[scenario]}")
    logging.getLogger("pettingzoo.utils.env_logger").setLevel(logging.ERROR)  # it warns per clip
    chosen = {names.get(name, name): value for name, value in options.items()}
    return [module.parallel_env(continuous_actions=continuous, **chosen) for _ in range(count)]


def play_in_mpe2(
    policy: TrainedPolicy, key: jax.Array, episodes: int, deterministic: bool, seed: int = 0
) -> Episodes:
    """`episodes` worlds in step: the policy sees them as one batch."""
    spec, config = policy.spec, policy.config
    if isinstance(spec.action_space, MultiDiscrete):
        raise ConfigError("world='mpe2' has no actions='multidiscrete'; it has the other two.")
    continuous = isinstance(spec.action_space, Box)
    worlds = make_worlds(config.env, config.env_options, continuous, episodes)
    views = [world.reset(seed=seed + i)[0] for i, world in enumerate(worlds)]
    if tuple(worlds[0].possible_agents) != spec.agents:
        raise ConfigError(f"mpe2's agents are {worlds[0].possible_agents}, not {spec.agents}.")
    total, length = np.zeros((episodes, spec.num_agents)), np.zeros(episodes)
    memory, fresh = policy.memory(episodes), np.ones(episodes)
    while any(world.agents for world in worlds):
        key, act_key = jax.random.split(key)
        obs = np.stack([_padded(policy, view) for view in views])
        action, memory = policy.act(
            obs, memory, key=act_key, fresh=fresh, deterministic=deterministic
        )
        fresh, chosen = np.zeros(episodes), np.asarray(action)
        for e, world in enumerate(worlds):
            mine = {a: _own(policy, i, chosen[e, i]) for i, a in enumerate(spec.agents)}
            views[e], rewards, _, _, _ = world.step(mine)
            total[e] += [rewards[agent] for agent in spec.agents]
            length[e] += 1
    return Episodes(total, length, None)  # pyright: ignore[reportArgumentType] (numpy will do)


def _padded(policy: TrainedPolicy, view: Mapping[str, np.ndarray]) -> np.ndarray:
    """[N, O]: agents' observations, zeros to the widest."""
    wide = policy.spec.obs_size
    return np.stack([np.pad(view[a], (0, wide - view[a].size)) for a in policy.spec.agents])


def _own(policy: TrainedPolicy, i: int, action: np.ndarray) -> Any:
    space = policy.spec.action_spaces[i]
    if isinstance(space, Box):
        return action[: space.size].astype(np.float32)
    return int(action)
