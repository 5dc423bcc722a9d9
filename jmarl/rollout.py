"""Playing: T steps of all worlds under the teams' policies."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.envs.base import Env, EnvSpec
from jmarl.policies import Policy, merge, pick, restrict
from jmarl.types import Decision, Perception, TimeStep, Transition

RewardShare = Literal["individual", "team_mean", "team_sum"]


def perceive(timestep: TimeStep) -> Perception:
    return Perception(timestep.obs, timestep.state, timestep.action_mask)


def shared_reward(reward: jax.Array, share: RewardShare) -> jax.Array:
    """[…, N] of one team: each its own, or all the team's mean or sum."""
    if share == "individual":
        return reward
    total = (
        reward.mean(-1, keepdims=True) if share == "team_mean" else reward.sum(-1, keepdims=True)
    )
    return jnp.broadcast_to(total, reward.shape)


def team_obs_size(spec: EnvSpec, team: int) -> int:
    return max(spec.obs_sizes[i] for i in spec.teams[team].agents)


def team_view(spec: EnvSpec, team: int, seen: Perception) -> Perception:
    """What one team sees of what all agents see."""
    return restrict(seen, spec.teams[team].agents, team_obs_size(spec, team))


def act_all(
    spec: EnvSpec,
    policies: Sequence[Policy],
    params: Sequence[Any],
    memory: Sequence[Any],
    key: jax.Array,
    seen: Perception,
    deterministic: bool = False,
) -> tuple[tuple[Any, ...], list[Decision], jax.Array]:
    """Every team decides on its own view; also the joint action in agent order."""
    memories, decisions = [], []
    for i, policy in enumerate(policies):
        mine = team_view(spec, i, seen)
        team_key = jax.random.fold_in(key, i)
        kept, decision = policy.act(params[i], team_key, memory[i], mine, deterministic)
        memories.append(kept)
        decisions.append(decision)
    teams = [team.agents for team in spec.teams]
    return tuple(memories), decisions, merge([d.action for d in decisions], teams, axis=1)


def rollout(
    env: Env,
    policies: Sequence[Policy],
    params: Sequence[Any],
    memory: tuple[Any, ...],
    env_state: Any,
    timestep: TimeStep,
    key: jax.Array,
    length: int,
    share: RewardShare,
) -> tuple[tuple[tuple[Any, ...], Any, TimeStep], list[Transition]]:
    """The state after `length` steps, and per team its transitions `[T, E, …]`."""
    spec = env.spec

    def step(carry: tuple, key: jax.Array) -> tuple:
        memory, env_state, timestep = carry
        act_key, step_key, value_key = jax.random.split(key, 3)
        seen = perceive(timestep)
        memory, decisions, action = act_all(spec, policies, params, memory, act_key, seen)
        env_state, after = env.step(step_key, env_state, action)
        final = Perception(after.final_obs, after.final_state, after.action_mask)
        transitions = []
        for i, (policy, team) in enumerate(zip(policies, spec.teams, strict=True)):
            mine, last = pick(team.agents), team_view(spec, i, final)
            # Worlds are seldom cut, and many together: their last view is valued only then.
            final_value = lax.cond(
                after.truncated.any(),
                partial(policy.value, params[i]),
                lambda *_, like=decisions[i].value: jnp.zeros_like(like),
                *(jax.random.fold_in(value_key, i), memory[i], last),
            )
            transitions.append(
                Transition(
                    perception=team_view(spec, i, seen),
                    decision=decisions[i],
                    active=timestep.active[:, mine].astype(after.reward.dtype),
                    reward=shared_reward(after.reward[:, mine], share),
                    terminated=after.terminated,
                    truncated=after.truncated,
                    final_value=final_value,
                )
            )
        return (memory, env_state, after), transitions

    return lax.scan(step, (memory, env_state, timestep), jax.random.split(key, length))
