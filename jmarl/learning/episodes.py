"""Scoring a policy: whole episodes, each world's first one counted."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jmarl.envs.base import Env, EnvSpec
from jmarl.errors import ConfigError
from jmarl.learning.rollout import act_all, noise_of, perceive
from jmarl.learning.running_statistics import UNCHANGED, Normalisers
from jmarl.policies.base import Group
from jmarl.stats import summary


class Episodes(NamedTuple):
    """What became of each."""

    agent_return: jax.Array  # [episodes, N]
    length: jax.Array  # [episodes]
    won: jax.Array | None  # [episodes] float, in worlds that can be won


def play_episodes(
    env: Env,
    groups: Sequence[Group],
    params: Sequence[Any],
    key: jax.Array,
    episodes: int,
    deterministic: bool | jax.Array = True,
    norms: Normalisers = UNCHANGED,
    place: Callable[[Any], Any] = lambda worlds: worlds,
) -> Episodes:
    """One episode of each of `episodes` worlds, side by side; the statistics stand still. `place`
    is given the worlds once they are there, and may share them out (`sharding.spread`)."""
    steps = env.spec.episode_length
    if steps is None:
        raise ConfigError(f"{env.spec.name} has no episode length, so it cannot be scored.")
    reset_key, act_key, world_key = jax.random.split(key, 3)

    def step(carry: tuple, given: tuple) -> tuple:
        memory, state, timestep, seen, running = carry
        noise, step_key = given
        sight = perceive(env.spec, timestep, norms)
        memory, _, action = act_all(env.spec, groups, params, memory, noise, sight, deterministic)
        state, timestep = env.step(step_key, state, action)
        won = None if timestep.won is None else seen.won + running * timestep.won
        seen = Episodes(
            agent_return=seen.agent_return + running[:, None] * timestep.reward,
            length=seen.length + running,
            won=won,
        )
        running = running * (1.0 - timestep.over)
        return (memory, state, timestep, seen, running), None

    state, timestep = place(env.reset(reset_key, episodes))
    memory = tuple(group.policy.memory(episodes) for group in groups)
    none = jnp.zeros(episodes)
    nothing = Episodes(
        jnp.zeros_like(timestep.reward), none, None if timestep.won is None else none
    )
    start = (memory, state, timestep, nothing, jnp.ones(episodes))
    noise = noise_of(groups, jax.random.split(act_key, episodes), steps)
    step_keys = jax.random.split(world_key, steps)
    (_, _, _, seen, _), _ = lax.scan(step, start, (noise, step_keys))
    return seen


def described(spec: EnvSpec, seen: Episodes, prefix: str) -> dict[str, float]:
    """Returns summed over all agents, then by team and by agent; lengths; victories."""
    returns, length = np.asarray(seen.agent_return, np.float64), np.asarray(seen.length)
    told = {f"{prefix}/return_{k}": v for k, v in summary(returns.sum(1)).items()}
    told[f"{prefix}/length_mean"] = float(length.mean())
    if seen.won is not None:
        told[f"{prefix}/win_rate"] = float(np.asarray(seen.won).mean())
    if not spec.cooperative:
        for team in spec.teams:
            mine = returns[:, list(team.agents)].sum(1)
            told[f"{prefix}/return_mean/{team.name}"] = float(mine.mean())
    if spec.num_agents > 1:
        for i, agent in enumerate(spec.agents):
            told[f"{prefix}/return_mean/{agent}"] = float(returns[:, i].mean())
    return told
