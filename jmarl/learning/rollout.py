"""Playing: T steps of all worlds under the players' policies, as trajectories to learn from."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jmarl.envs.base import Env, EnvSpec, Team
from jmarl.learning.acting import (
    Play,
    Turn,
    all_noise,
    final_view,
    normalised,
    observe,
    play_step,
    raw_view,
    world_keys,
)
from jmarl.learning.collectives import Layout
from jmarl.learning.episode_returns import EpisodeReturns
from jmarl.learning.finite import finite_or_zero
from jmarl.literals import AgentEnd, RewardShare
from jmarl.policies.base import Player, Policy, merge, pick
from jmarl.types import (
    Memory,
    Params,
    PolicyInput,
    PolicyOutput,
    PolicyState,
    TimeStep,
    TrainState,
    Trajectory,
)


class Step(NamedTuple):
    """What one player did in one step, as it is recorded."""

    seen: PolicyInput
    output: PolicyOutput
    final_value: jax.Array  # [E, n] of the final view where truncated, else 0
    reward: jax.Array
    active: jax.Array
    valued: jax.Array | None
    terminated: jax.Array
    truncated: jax.Array


def rollout(
    env: Env,
    players: Sequence[Player],
    state: TrainState,
    keys: tuple[jax.Array, jax.Array],
    length: int,
    sequence_lengths: Sequence[int | None],
    layout: Layout,
    skip_nonfinite: bool = False,
) -> tuple[TrainState, tuple[Trajectory, ...], EpisodeReturns]:
    """The state after `length` steps, each player's trajectory `[T, E, …]`, and the returns of the
    episodes that ended.

    Every world has random streams of its own, derived from its number, so what happens there does
    not depend on which worlds are played beside it. `keys` are for playing and for the values of
    what the last step led to. Observation statistics learn from every step before anything is
    normalised by them. With `skip_nonfinite`, NaN and infinity enter neither memory nor worlds.
    """
    worlds = layout.world_numbers(len(state.timestep.reward))
    params = [policy.params for policy in state.policies]

    clean = finite_or_zero if skip_nonfinite else lambda tree: tree
    step = partial(_step, env, players, params, worlds, layout, clean)
    block = math.gcd(*(length if n is None else n for n in sequence_lengths))
    given = _draw(players, keys[0], worlds, length)
    carry, (steps, starts) = _scan_in_blocks(step, _carried(state), given, length, block)
    end, stats, returns = carry
    policies = tuple(map(PolicyState, params, stats))
    trajectories = []
    for i, (player, stride) in enumerate(zip(players, sequence_lengths, strict=True)):
        seen, last_key = observe(env.spec, player, policies[i], end.timestep), keys[1]
        given = (worlds, jax.random.fold_in(last_key, i), end.memory[i], seen)
        last_value = _value(player.policy, params[i], *given)
        own_starts = _every(1 if stride is None else stride // block, starts[i])
        trajectories.append(_trajectory(steps[i], last_value, own_starts))
    after = state.replace(policies=policies, episode_return=returns.running, **end._asdict())
    return after, tuple(trajectories), returns


# what acting carries, every player's statistics, returns
Carry = tuple[Play, tuple[Any, ...], EpisodeReturns]


def _carried(state: TrainState) -> Carry:
    """Into a rollout."""
    stats = tuple(policy.obs_stats for policy in state.policies)
    returns = EpisodeReturns.at_start(state.episode_return, state.timestep.info)
    return Play(state.memory, state.env, state.timestep), stats, returns


def _step(
    env: Env,
    players: Sequence[Player],
    params: Sequence[Params],
    worlds: jax.Array,
    layout: Layout,
    clean: Callable[[Any], Any],
    carry: Carry,
    given: tuple,
) -> tuple[Carry, tuple[Step, ...]]:
    before, stats, returns = carry
    noise, step_keys, value_key = given
    policies = list(map(PolicyState, params, stats))
    advance = partial(env.step, step_keys)
    after, turn = play_step(env.spec, players, policies, before, noise, advance, clean=clean)
    stats = learn_moments(env.spec, players, stats, after.timestep, layout)
    policies = list(map(PolicyState, params, stats))
    values = final_values(env.spec, players, policies, after, turn, worlds, value_key)
    views = (turn, values, before.timestep, after.timestep)
    steps = tuple(_record(env.spec, player, i, *views) for i, player in enumerate(players))
    return (after, stats, returns.after(after.timestep)), steps


def _draw(players: Sequence[Player], key: jax.Array, worlds: jax.Array, length: int) -> tuple:
    """Each step's noise of all players, keys of the worlds and key of values. Drawn before the
    scan: random bits inside it would cost as much as everything else."""
    act_key, step_key, value_key = jax.random.split(key, 3)
    noise = all_noise(players, world_keys(act_key, worlds), length)
    step_keys = jax.vmap(world_keys, (0, None))(jax.random.split(step_key, length), worlds)
    return noise, step_keys, jax.random.split(value_key, length)


def _scan_in_blocks(
    step: Callable[..., tuple], carry: Carry, given: tuple, length: int, block: int
) -> tuple[Carry, tuple[tuple[Step, ...], tuple[Memory, ...]]]:
    """`lax.scan`, which also records the memory before every block of steps, `[T/block, E, …]`."""
    if block == length:
        end, steps = lax.scan(step, carry, given)
        return end, (steps, jax.tree.map(lambda x: x[None], carry[0].memory))

    def play_block(carry: Carry, given: tuple) -> tuple:
        end, steps = lax.scan(step, carry, given)
        return end, (steps, carry[0].memory)

    blocks = jax.tree.map(lambda x: x.reshape(-1, block, *x.shape[1:]), given)
    end, (steps, starts) = lax.scan(play_block, carry, blocks)
    return end, (jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), steps), starts)


def _every(stride: int, memory: Memory) -> Memory:
    return jax.tree.map(lambda x: x[::stride], memory)


def _trajectory(steps: Step, last_value: jax.Array, starts: Memory) -> Trajectory:
    """`next_value` is the following step's value, or the final view's where an episode was cut."""
    following = jnp.concatenate([steps.output.value[1:], last_value[None]])
    next_value = jnp.where(steps.truncated[..., None], steps.final_value, following)
    kept = {name: x for name, x in steps._asdict().items() if name != "final_value"}
    return Trajectory(**kept, next_value=next_value, starts=starts)


def _record(
    spec: EnvSpec,
    player: Player,
    i: int,
    turn: Turn,
    final_values: Sequence[jax.Array],
    before: TimeStep,
    after: TimeStep,
) -> Step:
    mine, dtype = pick(player.agents), after.reward.dtype
    waiting = None
    if spec.agents_leave and spec.num_agents > 1:
        waiting = valued(before.active, player.agent_end, spec.teams)
    return Step(
        seen=turn.seen[i],
        output=turn.outputs[i],
        final_value=final_values[i],
        reward=shared_reward(after.reward, spec.teams, player.reward)[:, mine],
        active=before.active[:, mine].astype(dtype),
        valued=None if waiting is None else waiting[:, mine].astype(dtype),
        terminated=ends(after.terminated, player.agent_end, spec.teams)[:, mine],
        truncated=after.truncated,
    )


def learn_moments(
    spec: EnvSpec,
    players: Sequence[Player],
    stats: Sequence[Any],
    timestep: TimeStep,
    layout: Layout,
) -> tuple[Any, ...]:
    """Every player's observation statistics after it has seen a time step of all worlds."""

    def learned(player: Player, known: Any) -> Any:
        if known is None:
            return None
        seen, active = raw_view(spec, player, timestep), timestep.active
        team = None if player.team is None else active[:, pick(player.team)]
        return known.update(seen, active[:, pick(player.agents)], team, layout.sum)

    return tuple(map(learned, players, stats))


def final_values(
    spec: EnvSpec,
    players: Sequence[Player],
    policies: Sequence[PolicyState],
    after: Play,
    turn: Turn,
    worlds: jax.Array,
    key: jax.Array,
) -> list[jax.Array]:
    """Every player's value `[E, n]` of what the step led to, before any reset. Worlds are seldom
    truncated, and many together, so it is computed only then; else it is 0."""
    values = []
    for i, player in enumerate(players):
        last = normalised(policies[i], final_view(spec, player, after.timestep))
        value = lax.cond(
            after.timestep.truncated.any(),
            partial(_value, player.policy, policies[i].params, worlds),
            lambda *_, like=turn.outputs[i].value: jnp.zeros_like(like),
            *(jax.random.fold_in(key, i), after.memory[i], last),
        )
        values.append(value)
    return values


def _value(
    policy: Policy,
    params: Params,
    worlds: jax.Array,
    key: jax.Array,
    memory: Memory,
    seen: PolicyInput,
) -> jax.Array:
    return policy.value(params, world_keys(key, worlds), memory, seen)


def shared_reward(
    reward: Float[Array, "E N"], teams: Sequence[Team], share: RewardShare
) -> Float[Array, "E N"]:
    """Each agent's own reward, or the mean or sum over its team."""
    if share == "individual":
        return reward
    return _of_teams(reward, teams, jnp.mean if share == "team_mean" else jnp.sum)


def ends(
    terminated: Bool[Array, "E N"], agent_end: AgentEnd, teams: Sequence[Team]
) -> Bool[Array, "E N"]:
    """Which agents have no future: each from its own end on, or all of a team or world
    from the end of its last agent on."""
    if agent_end == "own":
        return terminated
    if agent_end == "team":
        return _of_teams(terminated, teams, jnp.all)
    return jnp.broadcast_to(terminated.all(-1, keepdims=True), terminated.shape)


def valued(
    active: Bool[Array, "E N"], agent_end: AgentEnd, teams: Sequence[Team]
) -> Bool[Array, "E N"] | None:
    """Which agents' values are learned, if not only those of agents that act. An agent
    that is paid what its team earns after its death has a future then: returns bootstrap from the
    value of its views, so it must be learned. The references ("world") do not."""
    if agent_end != "team":
        return None
    return _of_teams(active, teams, jnp.any)


def _of_teams(x: jax.Array, teams: Sequence[Team], reduce: Callable[..., jax.Array]) -> jax.Array:
    """`[…, N]`: every agent has its team's x, reduced over the team's agents."""
    parts = [x[..., pick(team.agents)] for team in teams]
    each = [jnp.broadcast_to(reduce(part, -1, keepdims=True), part.shape) for part in parts]
    return merge(each, [team.agents for team in teams], axis=-1)
