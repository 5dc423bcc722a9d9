"""The one policy interface: rollout, loss, evaluation and replay all call the same functions."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jmarl.envs import spaces
from jmarl.envs.base import EnvSpec, Team, feature_mask
from jmarl.envs.spaces import Space
from jmarl.literals import AgentEnd, RewardShare
from jmarl.types import (
    Context,
    Evaluation,
    Memory,
    Noise,
    Params,
    PolicyInput,
    PolicyOutput,
    float_dtype,
)


class Policy(Protocol):
    """A player's policy. Pure: parameters and memory go in and come out."""

    @property
    def value_head(self) -> tuple[str, ...]:
        """Where in the parameters the last layer of the value is."""
        ...

    @property
    def recurrent(self) -> bool:
        """Whether `evaluate` takes sequences `[L, B, …]`; else rows `[B, …]`."""
        ...

    @property
    def critic_part(self) -> str | None:
        """The parameters' top-level key of a critic apart from the actor; None: they share."""
        ...

    @property
    def reads_state(self) -> bool:
        """Whether values depend on the global state."""
        ...

    def init(self, key: jax.Array) -> Params: ...

    def memory(self, num_envs: int) -> Memory:
        """What is remembered at the start of episodes; () for policies without memory."""
        ...

    def draw_noise(self, key: jax.Array, steps: int) -> Noise:
        """The noise of so many decisions in one world, leaves `[steps, N, …]`."""
        ...

    def act(
        self,
        params: Params,
        noise: Noise,
        memory: Memory,
        seen: PolicyInput,
        deterministic: bool | jax.Array = False,
    ) -> tuple[Memory, PolicyOutput]: ...

    def evaluate(
        self, params: Params, start: Memory, context: Context, seen: PolicyInput, action: jax.Array
    ) -> Evaluation:
        """Of recorded actions: rows `[B, …]`, or sequences `[L, B, …]` if the policy is recurrent.
        `start` `[B, …]` is the memory before each sequence, `context` what `act` returned with the
        action."""
        ...

    def value(
        self, params: Params, keys: jax.Array, memory: Memory, seen: PolicyInput
    ) -> jax.Array:
        """`[E, N]`; `keys` `[E]`: one for each world."""
        ...


def draw_noise(policy: Policy, keys: jax.Array, steps: int) -> Noise:
    """Leaves `[steps, E, N, …]`; `keys` `[E]`: every world has a random stream of its own."""
    return jax.vmap(partial(policy.draw_noise, steps=steps), out_axes=1)(keys)


def one_decision(policy: Policy, keys: jax.Array) -> Noise:
    """The noise of one decision in each world."""
    return jax.tree.map(lambda x: x[0], draw_noise(policy, keys, 1))


class Player(NamedTuple):
    """Agents that one policy plays and one learner trains: a team, a single agent or everybody."""

    name: str
    agents: tuple[int, ...]
    policy: Policy
    reward: RewardShare  # whose reward its agents receive
    agent_end: AgentEnd  # with whose end an agent's future ends
    team: tuple[int, ...] | None = None  # whose observations the critic reads; None: `agents`
    normalise_obs: bool = False  # by running moments


def player_obs_sizes(spec: EnvSpec, agents: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(spec.obs_sizes[i] for i in agents)


def real_features(obs_sizes: tuple[int, ...]) -> jax.Array | None:
    """`[N, O]`: 1 for an agent's own features, 0 for padding; None where nobody has padding."""
    own = feature_mask(obs_sizes)
    return None if own.all() else jnp.asarray(own, float_dtype())


def player_space(spec: EnvSpec, agents: tuple[int, ...]) -> Space:
    """The smallest action space that covers the members' own."""
    return spaces.cover([spec.action_spaces[i] for i in agents])


def player_view(spec: EnvSpec, player: Player, seen: PolicyInput) -> PolicyInput:
    """The members' part of what all agents see, without features and action entries that none of
    them has."""
    team = player.team
    return seen._replace(
        obs=_views(spec, player.agents, seen.obs),
        action_mask=_player_mask(spec, player.agents, seen.action_mask),
        team_obs=None if team is None else _views(spec, team, seen.obs),
    )


def _views(spec: EnvSpec, agents: tuple[int, ...], obs: jax.Array) -> jax.Array:
    return obs[..., pick(agents), : max(player_obs_sizes(spec, agents))]


def _player_mask(
    spec: EnvSpec, agents: tuple[int, ...], mask: jax.Array | None
) -> jax.Array | None:
    """`[…, n, A]`; None: everything is legal."""
    if mask is None:
        return None
    entries = spaces.entries(player_space(spec, agents), spec.action_space)
    return mask[..., pick(agents), :][..., pick(tuple(entries.tolist()))]


def joint_action(spec: EnvSpec, players: Sequence[Player], actions: list[jax.Array]) -> jax.Array:
    """The groups' actions as one array of all agents, each padded to the joint space."""
    parts = [
        spaces.pad(action, player_space(spec, player.agents), spec.action_space)
        for player, action in zip(players, actions, strict=True)
    ]
    return merge(parts, [player.agents for player in players], axis=1)


def team_places(teams: Sequence[Team], agents: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Where each team's agents are among `agents`; without teams that have none there."""
    places = {
        team.name: tuple(place for place, agent in enumerate(agents) if agent in team.agents)
        for team in teams
    }
    return {name: own for name, own in places.items() if own}


def pick(agents: tuple[int, ...]) -> slice | jax.Array:
    """An index for the agent axis: a slice where they are neighbours, so that nothing is
    gathered."""
    contiguous = agents == tuple(range(agents[0], agents[0] + len(agents)))
    return slice(agents[0], agents[-1] + 1) if contiguous else jnp.array(agents)


def merge(parts: list[jax.Array], members: list[tuple[int, ...]], axis: int) -> jax.Array:
    """Per-group arrays back into agent order along `axis`."""
    order = [agent for agents in members for agent in agents]
    joined = jnp.concatenate(parts, axis) if len(parts) > 1 else parts[0]
    if order == sorted(order):
        return joined
    back = sorted(range(len(order)), key=order.__getitem__)
    return jnp.take(joined, jnp.array(back), axis=axis)
