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
from jmarl.types import Decision, Perception, State, TimeStep, Transition


def perceive(timestep: TimeStep, norms: Normalisers) -> Perception:
    begun = (timestep.terminated | timestep.truncated).astype(timestep.obs.dtype)
    obs = norms.seen(timestep.obs)
    return Perception(obs, timestep.state, timestep.action_mask, begun)


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


def act_all(
    spec: EnvSpec,
    groups: Sequence[Group],
    params: Sequence[Any],
    memory: Sequence[Any],
    key: jax.Array,
    seen: Perception,
    deterministic: bool | jax.Array = False,
) -> tuple[tuple[Any, ...], list[Decision], jax.Array]:
    """Every group decides on its own view; also the joint action in agent order."""
    memories, decisions = [], []
    for i, group in enumerate(groups):
        mine = group_view(spec, group.agents, seen)
        group_key = jax.random.fold_in(key, i)
        kept, decision = group.policy.act(params[i], group_key, memory[i], mine, deterministic)
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
) -> tuple[State, list[Transition]]:
    """The state after `length` steps, and per group its transitions `[T, E, …]`. Statistics learn
    of every step before anything is normalised by them."""
    spec, params = env.spec, state.params

    def step(carry: tuple, key: jax.Array) -> tuple:
        memory, env_state, timestep, norms = carry
        act_key, step_key, value_key = jax.random.split(key, 3)
        seen = perceive(timestep, norms)
        memory, decisions, action = act_all(spec, groups, params, memory, act_key, seen)
        env_state, after = env.step(step_key, env_state, action)
        reward = shared_reward(after.reward, spec.teams, share)
        norms = norms.observe(after.obs).reward_observed(reward, after.terminated, gamma)
        going_on = jnp.zeros(after.truncated.shape, after.reward.dtype)
        final_obs = norms.seen(after.final_obs)
        final = Perception(final_obs, after.final_state, after.action_mask, going_on)
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
    end, played = lax.scan(step, start, jax.random.split(key, length))
    memory, env_state, timestep, norms = end
    after = state.replace(memory=memory, env=env_state, timestep=timestep, normalisers=norms)
    return after, played
