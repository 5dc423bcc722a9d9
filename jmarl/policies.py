"""The one policy interface: rollout, loss, evaluation and replay all call the same functions."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp

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

    def act(
        self,
        params: Params,
        key: jax.Array,
        memory: Memory,
        seen: Perception,
        deterministic: bool = False,
    ) -> tuple[Memory, Decision]: ...

    def evaluate(
        self, params: Params, context: Any, seen: Perception, action: jax.Array
    ) -> Evaluation:
        """`context` is what `act` gave along with the action."""
        ...

    def value(self, params: Params, key: jax.Array, memory: Memory, seen: Perception) -> jax.Array:
        """[…, N]"""
        ...


def restrict(seen: Perception, agents: tuple[int, ...], obs_size: int) -> Perception:
    """A team's part of what all agents see, without features that none of its members has."""
    mine = pick(agents)
    return Perception(seen.obs[..., mine, :obs_size], seen.state, seen.action_mask[..., mine, :])


def pick(agents: tuple[int, ...]) -> Any:
    """An index for the agent axis: a slice where the team is contiguous, so that nothing is
    gathered."""
    contiguous = agents == tuple(range(agents[0], agents[0] + len(agents)))
    return slice(agents[0], agents[-1] + 1) if contiguous else jnp.array(agents)


def merge(parts: list[jax.Array], teams: list[tuple[int, ...]], axis: int) -> jax.Array:
    """Per-team arrays back into agent order along `axis`."""
    order = [agent for team in teams for agent in team]
    joined = jnp.concatenate(parts, axis) if len(parts) > 1 else parts[0]
    if order == sorted(order):
        return joined
    back = sorted(range(len(order)), key=order.__getitem__)
    return jnp.take(joined, jnp.array(back), axis=axis)
