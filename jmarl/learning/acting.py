"""Acting: the one step that training, evaluation, replays and trained policies share."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jmarl.envs.base import Env, EnvSpec
from jmarl.policies.base import Player, draw_noise, joint_action, player_view
from jmarl.types import (
    EnvState,
    Memory,
    Noise,
    PolicyInput,
    PolicyOutput,
    PolicyState,
    TimeStep,
)

# Steps all worlds: (state, joint action) → (state, time step).
Advance = Callable[[EnvState, jax.Array], tuple[EnvState, TimeStep]]


class Play(NamedTuple):
    """What acting carries from step to step."""

    memory: tuple[Memory, ...]  # one entry per player
    env: EnvState
    timestep: TimeStep


class Turn(NamedTuple):
    """One step of all players in all worlds."""

    seen: tuple[PolicyInput, ...]  # one entry per player, as its policy read it
    outputs: tuple[PolicyOutput, ...]
    action: jax.Array  # [E, N, …] of all agents


def play_step(
    spec: EnvSpec,
    players: Sequence[Player],
    policies: Sequence[PolicyState],
    now: Play,
    noise: Sequence[Noise],
    advance: Advance,
    deterministic: bool | jax.Array = False,
    clean: Callable[[Any], Any] = lambda tree: tree,
) -> tuple[Play, Turn]:
    """Every player reads its view and acts; then the worlds step. `clean` may replace numbers in
    memory and actions before the worlds see them."""
    pairs = zip(players, policies, strict=True)
    seen = tuple(observe(spec, player, policy, now.timestep) for player, policy in pairs)
    memory, outputs, action = act(spec, players, policies, now.memory, noise, seen, deterministic)
    memory, action = clean((memory, action))
    env, timestep = advance(now.env, action)
    return Play(memory, env, timestep), Turn(seen, outputs, action)


def act(
    spec: EnvSpec,
    players: Sequence[Player],
    policies: Sequence[PolicyState],
    memory: Sequence[Memory],
    noise: Sequence[Noise],
    seen: Sequence[PolicyInput],
    deterministic: bool | jax.Array = False,
) -> tuple[tuple[Memory, ...], tuple[PolicyOutput, ...], jax.Array]:
    """Every player's memory and output, and the joint action in agent order."""
    steps = [
        player.policy.act(policies[i].params, noise[i], memory[i], seen[i], deterministic)
        for i, player in enumerate(players)
    ]
    memories, outputs = zip(*steps, strict=True)
    joint = joint_action(spec, players, [output.action for output in outputs])
    return memories, outputs, joint


def observe(spec: EnvSpec, player: Player, policy: PolicyState, timestep: TimeStep) -> PolicyInput:
    """A player's view of a time step, normalised by its own statistics."""
    return normalised(policy, raw_view(spec, player, timestep))


def raw_view(spec: EnvSpec, player: Player, timestep: TimeStep) -> PolicyInput:
    """What a player sees after a step; where an episode ended, the first view of the next."""
    starts = timestep.over.astype(timestep.obs.dtype)
    mask = legal(spec, timestep.action_mask)
    return player_view(spec, player, PolicyInput(timestep.obs, timestep.state, mask, starts))


def final_view(spec: EnvSpec, player: Player, timestep: TimeStep) -> PolicyInput:
    """What the step led to, before any reset."""
    goes_on = jnp.zeros(timestep.truncated.shape, timestep.reward.dtype)
    mask = legal(spec, timestep.final_action_mask)
    seen = PolicyInput(timestep.final_obs, timestep.final_state, mask, goes_on)
    return player_view(spec, player, seen)


def normalised(policy: PolicyState, seen: PolicyInput) -> PolicyInput:
    return seen if policy.obs_stats is None else policy.obs_stats.normalise(seen)


def legal(spec: EnvSpec, action_mask: jax.Array) -> jax.Array | None:
    """The action mask, or None where every action is always legal."""
    return None if spec.always_legal else action_mask


def world_keys(key: jax.Array, worlds: jax.Array) -> jax.Array:
    """`[E]` keys, one for each world, derived from its number."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, worlds)


def all_noise(players: Sequence[Player], keys: jax.Array, steps: int) -> tuple[Noise, ...]:
    """Every player's noise for so many steps in each world, leaves `[steps, E, N, …]`."""
    derived = jax.vmap(jax.random.fold_in, (0, None))
    return tuple(draw_noise(p.policy, derived(keys, i), steps) for i, p in enumerate(players))


def init_memory(players: Sequence[Player], num_envs: int) -> tuple[Memory, ...]:
    """Every player's memory at the start of episodes."""
    return tuple(player.policy.memory(num_envs) for player in players)


def begin_episodes(
    env: Env,
    players: Sequence[Player],
    key: jax.Array,
    episodes: int,
    steps: int,
    place: Callable[[Any], Any] = lambda worlds: worlds,
) -> tuple[Play, tuple[tuple[Noise, ...], jax.Array]]:
    """So many worlds at the start of an episode, and what a scan over their steps reads: the noise
    and the worlds' key of each. `place` is given the worlds after their reset."""
    reset_key, act_key, world_key = jax.random.split(key, 3)
    state, timestep = place(env.reset(reset_key, episodes))
    noise = all_noise(players, jax.random.split(act_key, episodes), steps)
    start = Play(init_memory(players, episodes), state, timestep)
    return start, (noise, jax.random.split(world_key, steps))
