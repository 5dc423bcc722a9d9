"""Records whole episodes of a trained policy: what agents saw, did and earned."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jmarl.errors import ConfigError
from jmarl.evaluation.trained_policy import TrainedPolicy
from jmarl.learning.acting import Play, begin_episodes, play_step
from jmarl.types import PolicyState, TimeStep


class EpisodeArrays(NamedTuple):
    """E episodes of at most T steps. After an episode's end everything is 0. View t is what agents
    saw before action t; view T is what the last step led to."""

    obs: np.ndarray  # [E, T+1, N, O], padded with zeros
    state: np.ndarray  # [E, T+1, S]
    action_mask: np.ndarray  # [E, T+1, N, A] bool
    active: np.ndarray  # [E, T+1, N] bool
    action: np.ndarray  # [E, T, N, …], padded with zeros
    reward: np.ndarray  # [E, T, N]
    terminated: np.ndarray  # [E, T, N] bool
    truncated: np.ndarray  # [E, T] bool
    length: np.ndarray  # [E] steps


def record_episodes(
    policy: TrainedPolicy, key: jax.Array, episodes: int, greedy: bool = True
) -> EpisodeArrays:
    """The episodes that `play_episodes` plays from the same key."""
    steps = policy.spec.episode_length
    if steps is None:
        raise ConfigError(
            f"{policy.spec.name} has no episode length, so its episodes are not recorded."
        )
    play = jax.jit(partial(_play, policy, episodes, steps))
    first, after, action = jax.device_get(play(policy.policies, key, jnp.asarray(greedy)))
    return _arranged(first, after, action)


def _play(
    policy: TrainedPolicy,
    episodes: int,
    steps: int,
    policies: tuple[PolicyState, ...],
    key: jax.Array,
    greedy: jax.Array,
) -> tuple[TimeStep, TimeStep, jax.Array]:
    """The first time step `[E, …]`, those of all steps `[T, E, …]`, and actions `[T, E, N, …]`."""
    env, players = policy.env, policy.players
    start, given = begin_episodes(env, players, key, episodes, steps)

    def step(now: Play, given: tuple) -> tuple[Play, tuple[TimeStep, jax.Array]]:
        noise, step_key = given
        advance = partial(env.step, step_key)
        after, turn = play_step(env.spec, players, policies, now, noise, advance, greedy)
        return after, (after.timestep, turn.action)

    _, (after, action) = lax.scan(step, start, given)
    return start.timestep, after, action


def _arranged(first: Any, after: Any, action: np.ndarray) -> EpisodeArrays:
    """Time steps as numpy arrays, by episode and without what followed its end."""
    over = np.moveaxis(after.over, 0, 1)
    played = ~np.logical_or.accumulate(over, axis=1)
    played = np.concatenate([np.ones_like(played[:, :1]), played[:, :-1]], axis=1)  # [E, T]
    seen = np.concatenate([np.ones_like(played[:, :1]), played], axis=1)

    def by_episode(x: np.ndarray) -> np.ndarray:
        return _where(played, np.moveaxis(x, 0, 1))

    def views(start: Any, later: Any) -> np.ndarray:
        return _where(seen, np.moveaxis(np.concatenate([np.asarray(start)[None], later]), 0, 1))

    alive = ~np.asarray(after.terminated)
    return EpisodeArrays(
        obs=views(first.obs, after.final_obs),
        state=views(first.state, after.final_state),
        action_mask=views(first.action_mask, after.final_action_mask),
        active=views(first.active, alive),
        action=by_episode(action),
        reward=by_episode(after.reward),
        terminated=by_episode(after.terminated),
        truncated=by_episode(after.truncated),
        length=played.sum(1),
    )


def _where(kept: np.ndarray, x: np.ndarray) -> np.ndarray:
    """`x` where the flag of its leading axes is set, else 0."""
    return np.where(kept.reshape(kept.shape + (1,) * (x.ndim - kept.ndim)), x, np.zeros_like(x))
