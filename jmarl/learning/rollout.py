"""Playing: T steps of all worlds under the groups' policies."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.envs.base import Env, EnvSpec, Team
from jmarl.learning.collectives import Sum, alone, world_axis
from jmarl.learning.finite import finite_or_zero
from jmarl.learning.running_statistics import Normalisers
from jmarl.literals import AgentEnd, RewardShare
from jmarl.policies.base import Group, Policy, draw_noise, group_view, joint_action, merge, pick
from jmarl.types import Decision, Perception, State, TimeStep, Transition


def perceive(spec: EnvSpec, timestep: TimeStep, norms: Normalisers) -> Perception:
    begun = timestep.over.astype(timestep.obs.dtype)
    obs, state = norms.seen(timestep.obs), norms.seen_state(timestep.state)
    return Perception(obs, state, legal(spec, timestep.action_mask), begun)


def legal(spec: EnvSpec, action_mask: jax.Array) -> jax.Array | None:
    """The action mask, if anything ever is illegal."""
    return None if spec.always_legal else action_mask


def shared_reward(reward: jax.Array, teams: Sequence[Team], share: RewardShare) -> jax.Array:
    """[…, N]: each its own, or all members of a team its mean or sum."""
    if share == "individual":
        return reward
    return _of_teams(reward, teams, jnp.mean if share == "team_mean" else jnp.sum)


def ends(terminated: jax.Array, agent_end: AgentEnd, teams: Sequence[Team]) -> jax.Array:
    """`[E, N]`: who has no future: each agent from its own end on, or all of a team or world from
    when the last is out."""
    if agent_end == "own":
        return terminated
    if agent_end == "team":
        return _of_teams(terminated, teams, jnp.all)
    return jnp.broadcast_to(terminated.all(-1, keepdims=True), terminated.shape)


def valued(active: jax.Array, agent_end: AgentEnd, teams: Sequence[Team]) -> jax.Array | None:
    """`[E, N]`: whose values are learned, if not only those of agents that act. An agent that is
    paid what its team earns after its death has a future then: the value of its views is
    bootstrapped from, so it must be learned. The references ("world") do not."""
    if agent_end != "team":
        return None
    return _of_teams(active, teams, jnp.any)


def _of_teams(x: jax.Array, teams: Sequence[Team], reduce: Callable[..., jax.Array]) -> jax.Array:
    """`[…, N]`: every agent has its team's x, reduced over the team's agents."""
    parts = [x[..., pick(team.agents)] for team in teams]
    each = [jnp.broadcast_to(reduce(part, -1, keepdims=True), part.shape) for part in parts]
    return merge(each, [team.agents for team in teams], axis=-1)


def world_keys(key: jax.Array, worlds: jax.Array) -> jax.Array:
    """`[E]` keys, one for each world, by its number."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, worlds)


def noise_of(groups: Sequence[Group], keys: jax.Array, steps: int) -> tuple[Any, ...]:
    """Every group's, for so many decisions in each world. Leaves `[steps, E, N, …]`."""
    derived = jax.vmap(jax.random.fold_in, (0, None))
    return tuple(draw_noise(g.policy, derived(keys, i), steps) for i, g in enumerate(groups))


def act_all(
    spec: EnvSpec,
    groups: Sequence[Group],
    params: Sequence[Any],
    memory: Sequence[Any],
    noise: Sequence[Any],
    seen: Perception,
    deterministic: bool | jax.Array = False,
) -> tuple[tuple[Any, ...], list[Decision], jax.Array]:
    """Every group decides on its own view; also the joint action in agent order."""
    memories, decisions = [], []
    for i, group in enumerate(groups):
        mine = group_view(spec, group, seen)
        kept, decision = group.policy.act(params[i], noise[i], memory[i], mine, deterministic)
        memories.append(kept)
        decisions.append(decision)
    joint = joint_action(spec, groups, [decision.action for decision in decisions])
    return tuple(memories), decisions, joint


def rollout(
    env: Env,
    groups: Sequence[Group],
    state: State,
    key: jax.Array,
    worlds: jax.Array,
    length: int,
    share: RewardShare,
    gamma: jax.Array | float,
    across: Sum = alone,
    agent_end: AgentEnd = "own",
    skip_nonfinite: bool = False,
) -> tuple[State, list[Transition]]:
    """The state after `length` steps, and per group its transitions `[T, E, …]`. What is random in
    a world depends on its number, `worlds` `[E]`, not on which others are played here. Statistics
    learn of every step, and `across` all shards of worlds, before anything is normalised by
    them. With `skip_nonfinite` neither statistics nor memory nor worlds take in a NaN or an
    infinity; the transitions show them as they came."""
    spec, params = env.spec, state.params
    some_wait = spec.agents_leave and spec.num_agents > 1

    def step(carry: tuple, given: tuple) -> tuple:
        memory, env_state, timestep, norms = carry
        noise, step_keys, value_key = given
        seen = perceive(spec, timestep, norms)
        memory, decisions, action = act_all(spec, groups, params, memory, noise, seen)
        if skip_nonfinite:
            memory, action = finite_or_zero((memory, action))
        env_state, after = env.step(step_keys, env_state, action)
        reward = shared_reward(after.reward, spec.teams, share)
        known = norms
        norms = norms.observe(after.obs, after.state, after.active, across)
        terminated = ends(after.terminated, agent_end, spec.teams)
        waiting = valued(timestep.active, agent_end, spec.teams) if some_wait else None
        norms = norms.reward_observed(reward, timestep.active, terminated, gamma, across)
        if skip_nonfinite:
            norms = norms.finite_or(known)
        going_on = jnp.zeros(after.truncated.shape, after.reward.dtype)
        final_obs, final_state = norms.seen(after.final_obs), norms.seen_state(after.final_state)
        legal_then = legal(spec, after.final_action_mask)
        final = Perception(final_obs, final_state, legal_then, going_on)
        counted = norms.paid(reward)
        transitions = []
        for i, group in enumerate(groups):
            mine, last = pick(group.agents), group_view(spec, group, final)
            # Worlds are seldom cut, and many together: their last view is valued only then.
            final_value = lax.cond(
                after.truncated.any(),
                partial(_value, group.policy, params[i], worlds),
                lambda *_, like=decisions[i].value: jnp.zeros_like(like),
                *(jax.random.fold_in(value_key, i), memory[i], last),
            )
            transitions.append(
                Transition(
                    perception=group_view(spec, group, seen),
                    decision=decisions[i],
                    active=timestep.active[:, mine].astype(after.reward.dtype),
                    valued=_as_floats(waiting, mine, after.reward.dtype),
                    reward=counted[:, mine],
                    paid=reward[:, mine],
                    terminated=terminated[:, mine],
                    truncated=after.truncated,
                    final_value=final_value,
                )
            )
        return (memory, env_state, after, norms), transitions

    start = (state.memory, state.env, state.timestep, state.normalisers)
    # Drawn before the scan: random bits inside of it would cost as much as all the rest.
    act_key, step_key, value_key = jax.random.split(key, 3)
    noise = noise_of(groups, world_keys(act_key, worlds), length)
    step_keys = jax.vmap(world_keys, (0, None))(jax.random.split(step_key, length), worlds)
    value_keys = jax.random.split(value_key, length)
    end, played = lax.scan(step, start, (noise, step_keys, value_keys))
    memory, env_state, timestep, norms = end
    after = state.replace(memory=memory, env=env_state, timestep=timestep, normalisers=norms)
    return after, played


def _as_floats(flags: jax.Array | None, agents: Any, dtype: Any) -> jax.Array | None:
    return None if flags is None else flags[:, agents].astype(dtype)


def restart_broken(env: Env, state: State, key: jax.Array, worlds: jax.Array) -> State:
    """Worlds whose agents see or are paid a number that is not finite begin anew, with empty
    memory; they might never recover by themselves."""
    timestep, count = state.timestep, len(worlds)
    views = (timestep.obs, timestep.state, timestep.reward)
    rows = jnp.concatenate([x.reshape(count, -1) for x in views], axis=1)
    broken = ~jnp.isfinite(rows).all(1)

    def begin_anew() -> tuple[Any, Any]:
        new = env.reset(world_keys(key, worlds), count)
        return jax.tree.map(lambda x, like: x.astype(like.dtype), new, same)

    same = (state.env, timestep)
    new = lax.cond(broken.any(), begin_anew, lambda: same)
    env_state, timestep = jax.tree.map(partial(_by_world, broken), new, same, _world_axes(env))
    memory = jax.tree.map(lambda x: _by_world(broken, jnp.zeros_like(x), x, 0), state.memory)
    return state.replace(env=env_state, timestep=timestep, memory=memory)


def _world_axes(env: Env) -> tuple[Any, Any]:
    """Of state and time step: which axis counts worlds. -1 for what all worlds share, such as the
    step of their episodes."""

    def axis(one: Any, two: Any) -> int:
        found = world_axis(one, two)
        return -1 if found is None else found  # None would be no leaf of a tree

    key = jax.eval_shape(lambda: jax.random.key(0))
    one, two = (jax.eval_shape(partial(env.reset, num_envs=n), key) for n in (1, 2))
    return jax.tree.map(axis, one, two)


def _by_world(broken: jax.Array, new: jax.Array, old: jax.Array, axis: int) -> jax.Array:
    """`new` in the broken worlds."""
    if axis < 0:
        return old
    flags = broken.reshape(*(1,) * axis, -1, *(1,) * (old.ndim - axis - 1))
    return jnp.where(flags, new, old)


def _value(
    policy: Policy, params: Any, worlds: jax.Array, key: jax.Array, memory: Any, seen: Perception
) -> jax.Array:
    return policy.value(params, world_keys(key, worlds), memory, seen)
