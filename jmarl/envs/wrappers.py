"""Wrappers: an `Env` in, an `Env` out."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jmarl.envs.base import Env, EnvSpec
from jmarl.types import TimeStep


class EpisodeState(struct.PyTreeNode):
    """A wrapped world's state with the account of its running and its last finished episode."""

    env: Any
    running_return: jax.Array  # [E, N]
    running_length: jax.Array  # [E] int32
    episode_return: jax.Array  # [E, N] of the last finished episode; 0 before the first
    episode_length: jax.Array  # [E] int32, likewise


@dataclass(frozen=True)
class EpisodeStatistics:
    """Counts returns and lengths. `terminated | truncated` says when an episode's are new."""

    env: Env

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def reset(self, key: jax.Array, num_envs: int) -> tuple[EpisodeState, TimeStep]:
        env_state, timestep = self.env.reset(key, num_envs)
        nothing = jnp.zeros_like(timestep.reward)
        no_steps = jnp.zeros(num_envs, jnp.int32)
        return EpisodeState(env_state, nothing, no_steps, nothing, no_steps), timestep

    def step(
        self, key: jax.Array, state: EpisodeState, action: jax.Array
    ) -> tuple[EpisodeState, TimeStep]:
        env_state, timestep = self.env.step(key, state.env, action)
        total = state.running_return + timestep.reward
        length = state.running_length + 1
        ended = timestep.over
        counted = EpisodeState(
            env=env_state,
            running_return=jnp.where(ended[:, None], 0.0, total),
            running_length=jnp.where(ended, 0, length),
            episode_return=jnp.where(ended[:, None], total, state.episode_return),
            episode_length=jnp.where(ended, length, state.episode_length),
        )
        return counted, timestep


def team_return(spec: EnvSpec, agent_return: jax.Array) -> jax.Array:
    """[…, N] → […, teams]: summed over the agents of each team."""
    sums = [agent_return[..., list(team.agents)].sum(-1) for team in spec.teams]
    return jnp.stack(sums, axis=-1)
