"""The one policy interface: rollout, loss, evaluation and replay all call the same functions."""

from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jmarl.envs.base import EnvSpec
from jmarl.types import Decision, Evaluation, Perception

Params = Any
Memory = Any


class Policy(Protocol):
    """A team's policy. Pure: parameters and memory go in and come out."""

    @property
    def value_head(self) -> tuple[str, ...]:
        """Where in the parameters the last layer of the value is."""
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
    """Agents that one policy plays: a team, or everybody."""

    name: str
    agents: tuple[int, ...]
    policy: Policy


def group_obs_size(spec: EnvSpec, agents: tuple[int, ...]) -> int:
    """Of the member that sees most."""
    return max(spec.obs_sizes[i] for i in agents)


def group_view(spec: EnvSpec, agents: tuple[int, ...], seen: Perception) -> Perception:
    """The members' part of what all agents see, without features that none of them has."""
    mine, obs_size = pick(agents), group_obs_size(spec, agents)
    mask = seen.action_mask
    return seen._replace(
        obs=seen.obs[..., mine, :obs_size],
        action_mask=None if mask is None else mask[..., mine, :],
    )


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
