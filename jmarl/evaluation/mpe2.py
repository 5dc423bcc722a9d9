"""Plays a policy in Farama's mpe2, the numpy original."""

import importlib
import importlib.util
import logging
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jmarl.envs.by_agent import joint_obs, own_action
from jmarl.envs.mpe import SCENARIOS, names_of_mpe2
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
    "simple_formation": "simple_formation_v1",
    "simple_line": "simple_line_v1",
    "collect_treasure": "collect_treasure_v1",
}
ONLY_NATIVE = ("agent_ids", "dialect", "num_landmarks", "actions")
STAGE = "curriculum_stage"  # an option of jmarl's; mpe2 is told after it has been made


def make_worlds(env: str, options: Mapping[str, Any], continuous: bool, count: int) -> list[Any]:
    """The mpe2 environments that correspond to jmarl's name and options."""
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
    if unsupported := [name for name in options if name in ONLY_NATIVE]:
        raise ConfigError(f"world='mpe2' has no option {unsupported[0]!r}.")
    names = {ours: theirs for theirs, ours in names_of_mpe2(SCENARIOS[scenario]).items()}
    module = importlib.import_module(f"mpe2.{VERSIONS[scenario]}")
    # PettingZoo warns about every clipped action.
    logging.getLogger("pettingzoo.utils.env_logger").setLevel(logging.ERROR)
    chosen = {names.get(name, name): value for name, value in options.items() if name != STAGE}
    worlds = [module.parallel_env(continuous_actions=continuous, **chosen) for _ in range(count)]
    for world in worlds if STAGE in options else ():
        world.unwrapped.set_curriculum_stage(options[STAGE])
        if world.unwrapped.curriculum_stage != options[STAGE]:  # mpe2 1.1.1 keeps stage 0
            raise ConfigError(
                f"world='mpe2' ignores {STAGE}={options[STAGE]} and plays stage "
                f"{world.unwrapped.curriculum_stage}: choose world='native'."
            )
    return worlds


def play_in_mpe2(
    policy: TrainedPolicy, key: jax.Array, episodes: int, deterministic: bool, seed: int = 0
) -> Episodes:
    """Play one episode in each of `episodes` worlds, which the policy sees as one batch."""
    spec, config = policy.spec, policy.config
    if isinstance(spec.action_space, MultiDiscrete):
        raise ConfigError(
            "world='mpe2' has no actions='multidiscrete'; it has 'discrete' and 'continuous'."
        )
    continuous = isinstance(spec.action_space, Box)
    worlds = make_worlds(config.env, config.env_options, continuous, episodes)
    observations = [world.reset(seed=seed + i)[0] for i, world in enumerate(worlds)]
    if tuple(worlds[0].possible_agents) != spec.agents:
        raise ConfigError(f"mpe2's agents are {worlds[0].possible_agents}, not {spec.agents}.")
    total, length = np.zeros((episodes, spec.num_agents)), np.zeros(episodes)
    memory, episode_start = policy.memory(episodes), np.ones(episodes)
    while playing := [e for e, world in enumerate(worlds) if world.agents]:
        key, act_key = jax.random.split(key)
        obs = np.stack([joint_obs(spec, of_world) for of_world in observations])
        action, memory = policy.act(
            obs, memory, key=act_key, episode_start=episode_start, deterministic=deterministic
        )
        episode_start, chosen = np.zeros(episodes), np.array(action)
        for e in playing:
            observations[e], rewards, _, _, _ = worlds[e].step(own_action(spec, chosen[e]))
            total[e] += [rewards[agent] for agent in spec.agents]
            length[e] += 1
    return Episodes(total, length, None)  # pyright: ignore[reportArgumentType] (numpy arrays)
