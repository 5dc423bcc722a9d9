"""Playing: T steps of all worlds under the groups' policies."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.choices import RewardShare
from jmarl.envs.base import Env, EnvSpec, Team
from jmarl.normalize import Normalisers
from jmarl.policies import Group, group_view, merge, pick
from jmarl.shards import Sum, alone
from jmarl.types import Decision, Perception, State, TimeStep, Transition


def perceive(spec: EnvSpec, timestep: TimeStep, norms: Normalisers) -> Perception:
    begun = (timestep.terminated | timestep.truncated).astype(timestep.obs.dtype)
    obs = norms.seen(timestep.obs)
    return Perception(obs, timestep.state, legal(spec, timestep), begun)


def legal(spec: EnvSpec, timestep: TimeStep) -> jax.Array | None:
    """The action mask, if anything ever is illegal."""
    return None if spec.always_legal else timestep.action_mask


def shared_reward(reward: jax.Array, teams: Sequence[Team], share: RewardShare) -> jax.Array:
    """[…, N]: each its own, or all members of a team its mean or sum."""
    if share == "individual":
        return reward
    parts = []
    for team in teams:
        own = reward[..., pick(team.agents)]
        total = own.mean(-1, keepdims=True) if share == "team_mean" else own.sum(-1, keepdims=True)
        parts.append(jnp.broadcast_to(total, own.shape))
    return merge(parts, [team.agents for team in teams], axis=-1)


def chances(groups: Sequence[Group], key: jax.Array, num_envs: int) -> tuple[Any, ...]:
    """Every group's, for one decision."""
    keys = (jax.random.fold_in(key, i) for i in range(len(groups)))
    return tuple(group.policy.chance(k, num_envs) for group, k in zip(groups, keys, strict=True))


def act_all(
    spec: EnvSpec,
    groups: Sequence[Group],
    params: Sequence[Any],
    memory: Sequence[Any],
    chance: Sequence[Any],
    seen: Perception,
    deterministic: bool | jax.Array = False,
) -> tuple[tuple[Any, ...], list[Decision], jax.Array]:
    """Every group decides on its own view; also the joint action in agent order."""
    memories, decisions = [], []
    for i, group in enumerate(groups):
        mine = group_view(spec, group.agents, seen)
        kept, decision = group.policy.act(params[i], chance[i], memory[i], mine, deterministic)
        memories.append(kept)
        decisions.append(decision)
    members = [group.agents for group in groups]
    return tuple(memories), decisions, merge([d.action for d in decisions], members, axis=1)


def rollout(
    env: Env,
    groups: Sequence[Group],
    state: State,
    key: jax.Array,
    length: int,
    share: RewardShare,
    gamma: jax.Array | float,
    across: Sum = alone,
) -> tuple[State, list[Transition]]:
    """The state after `length` steps, and per group its transitions `[T, E, …]`. Statistics learn
    of every step, and `across` all shards of worlds, before anything is normalised by them."""
    spec, params = env.spec, state.params

    def step(carry: tuple, luck: tuple) -> tuple:
        memory, env_state, timestep, norms = carry
        chance, (step_key, value_key) = luck
        seen = perceive(spec, timestep, norms)
        memory, decisions, action = act_all(spec, groups, params, memory, chance, seen)
        env_state, after = env.step(step_key, env_state, action)
        reward = shared_reward(after.reward, spec.teams, share)
        norms = norms.observe(after.obs, across)
        norms = norms.reward_observed(reward, after.terminated, gamma, across)
        going_on = jnp.zeros(after.truncated.shape, after.reward.dtype)
        final_obs = norms.seen(after.final_obs)
        final = Perception(final_obs, after.final_state, legal(spec, after), going_on)
        counted = norms.paid(reward)
        transitions = []
        for i, group in enumerate(groups):
            mine, last = pick(group.agents), group_view(spec, group.agents, final)
            # Worlds are seldom cut, and many together: their last view is valued only then.
            final_value = lax.cond(
                after.truncated.any(),
                partial(group.policy.value, params[i]),
                lambda *_, like=decisions[i].value: jnp.zeros_like(like),
                *(jax.random.fold_in(value_key, i), memory[i], last),
            )
            transitions.append(
                Transition(
                    perception=group_view(spec, group.agents, seen),
                    decision=decisions[i],
                    active=timestep.active[:, mine].astype(after.reward.dtype),
                    reward=counted[:, mine],
                    paid=reward[:, mine],
                    terminated=after.terminated,
                    truncated=after.truncated,
                    final_value=final_value,
                )
            )
        return (memory, env_state, after, norms), transitions

    start = (state.memory, state.env, state.timestep, state.normalisers)
    act_key, world_key = jax.random.split(key)
    # At once: bits are made by a loop, which within this one would cost as much as all the rest.
    drawn = jax.vmap(lambda key: chances(groups, key, len(state.timestep.reward)))(
        jax.random.split(act_key, length)
    )
    keys = jax.random.split(world_key, (length, 2))
    end, played = lax.scan(step, start, (drawn, (keys[:, 0], keys[:, 1])))
    memory, env_state, timestep, norms = end
    after = state.replace(memory=memory, env=env_state, timestep=timestep, normalisers=norms)
    return after, played
