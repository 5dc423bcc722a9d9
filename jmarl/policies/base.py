"""The one policy interface: rollout, loss, evaluation and replay all call the same functions."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jmarl.envs import spaces
from jmarl.envs.base import EnvSpec, feature_mask
from jmarl.envs.spaces import Space
from jmarl.types import Decision, Evaluation, Perception, float_dtype

Params = Any
Memory = Any


class Policy(Protocol):
    """A team's policy. Pure: parameters and memory go in and come out."""

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

    def draw_noise(self, key: jax.Array, steps: int) -> Any:
        """The noise of so many decisions in one world, leaves `[steps, N, …]`."""
        ...

    def act(
        self,
        params: Params,
        noise: Any,
        memory: Memory,
        seen: Perception,
        deterministic: bool | jax.Array = False,
    ) -> tuple[Memory, Decision]: ...

    def evaluate(
        self, params: Params, context: Any, seen: Perception, action: jax.Array
    ) -> Evaluation:
        """`context` is what `act` gave along with the action."""
        ...

    def value(self, params: Params, keys: jax.Array, memory: Memory, seen: Perception) -> jax.Array:
        """`[E, N]`; `keys` `[E]`: one for each world."""
        ...


def draw_noise(policy: Policy, keys: jax.Array, steps: int) -> Any:
    """Leaves `[steps, E, N, …]`; `keys` `[E]`: every world has a random stream of its own."""
    return jax.vmap(partial(policy.draw_noise, steps=steps), out_axes=1)(keys)


def one_decision(policy: Policy, keys: jax.Array) -> Any:
    """The noise of one decision in each world."""
    return jax.tree.map(lambda x: x[0], draw_noise(policy, keys, 1))


class Group(NamedTuple):
    """Agents that one policy plays and one learner trains: a team, a single agent or everybody."""

    name: str
    agents: tuple[int, ...]
    policy: Policy
    team: tuple[int, ...] | None = None  # whose observations the critic reads; None: `agents`


def group_obs_sizes(spec: EnvSpec, agents: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(spec.obs_sizes[i] for i in agents)


def real_features(obs_sizes: tuple[int, ...]) -> jax.Array | None:
    """`[N, O]`: 1 for an agent's own features, 0 for padding; None where nobody has padding."""
    own = feature_mask(obs_sizes)
    return None if own.all() else jnp.asarray(own, float_dtype())


def group_space(spec: EnvSpec, agents: tuple[int, ...]) -> Space:
    """The smallest action space that covers the members' own."""
    return spaces.cover([spec.action_spaces[i] for i in agents])


def group_view(spec: EnvSpec, group: Group, seen: Perception) -> Perception:
    """The members' part of what all agents see, without features and action entries that none of
    them has."""
    team = group.team
    return seen._replace(
        obs=_views(spec, group.agents, seen.obs),
        action_mask=_group_mask(spec, group.agents, seen.action_mask),
        team_obs=None if team is None else _views(spec, team, seen.obs),
    )


def _views(spec: EnvSpec, agents: tuple[int, ...], obs: jax.Array) -> jax.Array:
    return obs[..., pick(agents), : max(group_obs_sizes(spec, agents))]


def _group_mask(spec: EnvSpec, agents: tuple[int, ...], mask: jax.Array | None) -> jax.Array | None:
    """`[…, n, A]`; None: everything is legal."""
    if mask is None:
        return None
    entries = spaces.entries(group_space(spec, agents), spec.action_space)
    return mask[..., pick(agents), :][..., pick(tuple(entries.tolist()))]


def joint_action(spec: EnvSpec, groups: Sequence[Group], actions: list[jax.Array]) -> jax.Array:
    """The groups' actions as one array of all agents, each padded to the joint space."""
    parts = [
        spaces.pad(action, group_space(spec, group.agents), spec.action_space)
        for group, action in zip(groups, actions, strict=True)
    ]
    return merge(parts, [group.agents for group in groups], axis=1)


def pick(agents: tuple[int, ...]) -> Any:
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
