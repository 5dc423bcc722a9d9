"""Scoring a policy: whole episodes, each world's first one counted."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.envs.base import Env
from jmarl.envs.wrappers import team_return
from jmarl.errors import ConfigError
from jmarl.policies import Group
from jmarl.rollout import act_all, perceive


def episode_returns(
    env: Env,
    groups: Sequence[Group],
    params: Sequence[Any],
    key: jax.Array,
    episodes: int,
    deterministic: bool = True,
) -> jax.Array:
    """[episodes, teams]: returns summed over each team's agents."""
    length = env.spec.episode_length
    if length is None:
        raise ConfigError(f"{env.spec.name} has no episode length, so it cannot be scored.")
    reset_key, play_key = jax.random.split(key)

    def step(carry: tuple, key: jax.Array) -> tuple:
        memory, state, timestep, total, running = carry
        act_key, step_key = jax.random.split(key)
        memory, _, action = act_all(
            env.spec, groups, params, memory, act_key, perceive(timestep), deterministic
        )
        state, timestep = env.step(step_key, state, action)
        total = total + timestep.reward * running[:, None]
        running = running * (1.0 - (timestep.terminated | timestep.truncated))
        return (memory, state, timestep, total, running), None

    state, timestep = env.reset(reset_key, episodes)
    memory = tuple(group.policy.memory(episodes) for group in groups)
    start = (memory, state, timestep, jnp.zeros_like(timestep.reward), jnp.ones(episodes))
    (_, _, _, total, _), _ = lax.scan(step, start, jax.random.split(play_key, length))
    return team_return(env.spec, total)
