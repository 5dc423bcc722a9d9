"""Scoring policies by whole episodes; in each world the first one counts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jmarl.envs.base import Env, EnvSpec
from jmarl.errors import ConfigError
from jmarl.learning.acting import begin_episodes, play_step
from jmarl.policies.base import Player
from jmarl.stats import summary
from jmarl.types import PolicyState, TimeStep


class Episodes(NamedTuple):
    """Results of episodes."""

    agent_return: jax.Array  # [episodes, N]
    length: jax.Array  # [episodes]
    won: jax.Array | None  # [episodes] float, in worlds that can be won
    info: dict[str, jax.Array] | None = None  # [episodes] Σ over steps of `TimeStep.info`

    @classmethod
    def none(cls, timestep: TimeStep) -> "Episodes":
        """Before the first step."""
        length = jnp.zeros(len(timestep.reward))
        won = None if timestep.won is None else length
        info = jax.tree.map(jnp.zeros_like, timestep.info)
        return cls(jnp.zeros_like(timestep.reward), length, won, info)

    def after(self, timestep: TimeStep, running: Float[Array, " E"]) -> "Episodes":
        """After one more step. `running`: 1 where the episode had not ended before."""

        def sums(so_far: jax.Array, x: jax.Array) -> jax.Array:
            return so_far + running * x

        return Episodes(
            agent_return=self.agent_return + running[:, None] * timestep.reward,
            length=self.length + running,
            won=jax.tree.map(sums, self.won, timestep.won),
            info=jax.tree.map(sums, self.info, timestep.info),
        )


def play_episodes(
    env: Env,
    players: Sequence[Player],
    policies: Sequence[PolicyState],
    key: jax.Array,
    episodes: int,
    deterministic: bool | jax.Array = True,
    place: Callable[[Any], Any] = lambda worlds: worlds,
) -> Episodes:
    """One episode of each of `episodes` worlds, side by side; statistics do not change. `place` is
    given the worlds after their reset, and may shard them (`sharding.spread`)."""
    steps = env.spec.episode_length
    if steps is None:
        raise ConfigError(f"{env.spec.name} has no episode length, so it cannot be scored.")
    start, given = begin_episodes(env, players, key, episodes, steps, place)

    def step(carry: tuple, given: tuple) -> tuple:
        before, seen, running = carry
        noise, step_key = given
        advance = partial(env.step, step_key)
        after, _ = play_step(env.spec, players, policies, before, noise, advance, deterministic)
        timestep = after.timestep
        seen = seen.after(timestep, running)
        return (after, seen, running * (1.0 - timestep.over)), None

    none = Episodes.none(start.timestep)
    (_, seen, _), _ = lax.scan(step, (start, none, jnp.ones(episodes)), given)
    return seen


def team_suffixes(spec: EnvSpec) -> list[str]:
    """What the names of returns end with: nothing where all agents are one team, and the team's
    name between opponents, of whom a sum would say nothing."""
    return [""] if spec.cooperative else [f"/{team.name}" for team in spec.teams]


def named_teams(spec: EnvSpec) -> dict[str, list[str]]:
    """What a line says of opponents, for those who read it without the world; else nothing."""
    return {} if spec.cooperative else {"teams": [team.name for team in spec.teams]}


def episode_figures(spec: EnvSpec, seen: Episodes, prefix: str) -> dict[str, float]:
    """Statistics of returns, summed over all agents, or by team where teams are opponents; mean
    returns by agent; lengths and wins; means per step of what worlds report."""
    returns, length = np.asarray(seen.agent_return, np.float64), np.asarray(seen.length)
    figures = {}
    for team, suffix in zip(spec.teams, team_suffixes(spec), strict=True):
        of_team = summary(returns[:, list(team.agents)].sum(1))
        figures |= {f"{prefix}/return_{k}{suffix}": v for k, v in of_team.items()}
    figures[f"{prefix}/length_mean"] = float(length.mean())
    if seen.won is not None:
        figures[f"{prefix}/win_rate"] = float(np.asarray(seen.won).mean())
    for name, total in (seen.info or {}).items():
        figures[f"{prefix}/info/{name}"] = float((np.asarray(total) / length).mean())
    if spec.num_agents > 1:
        for i, agent in enumerate(spec.agents):
            figures[f"{prefix}/return_mean/{agent}"] = float(returns[:, i].mean())
    return figures
