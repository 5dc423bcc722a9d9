"""Attention weights of a transformer policy while it decides: maps by agent and step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.networks.attention_maps import record_attention
from jmarl.policies.agent_order import Order, to_agents
from jmarl.policies.base import Policy
from jmarl.policies.mat import MatPolicy
from jmarl.types import PolicyInput

# name of an attention layer in its block → name on the page
PARTS = {"attn": "views", "attn1": "actions", "attn2": "decision"}


class RecordedDecision(NamedTuple):
    """A team's inputs and actions, `[T, E, …]`: enough to recompute its decisions."""

    inputs: PolicyInput
    action: jax.Array
    context: Any


class Map(NamedTuple):
    """Weights of one attention layer. In the encoder's (`views`) the columns are agents. The
    decoder's two read the actions of preceding agents; their first column is the start token."""

    part: str  # of PARTS
    block: int
    weights: np.ndarray  # [E, T, heads, N, N], or N + 1 columns


class TeamAttention(NamedTuple):
    """Attention of one team's transformer; rows and columns are agents in their fixed order,
    independent of the order of turns."""

    agents: tuple[int, ...]
    maps: tuple[Map, ...]
    order: np.ndarray | None  # [E, T, N]: the agents in order of their turns; None: fixed order


def attention_of(
    policy: Policy, params: Any, decision: RecordedDecision
) -> dict[tuple[str, int], jax.Array]:
    """Weights `[T, E, heads, N, columns]` by part and block; empty for policies without attention.
    Computed by the parallel pass, whose numbers equal those of acting."""
    if not isinstance(policy, MatPolicy):
        return {}
    inputs, action, order = decision
    recorded = record_attention(lambda: policy.evaluate(params, (), order, inputs, action))
    weights_of = {}
    for path, weights in recorded.items():
        part, block = PARTS[path[-1]], int(path[-2].rpartition("_")[2])
        weights_of[part, block] = order_by_agent(weights, order, shifted=part != "views")
    return weights_of


def order_by_agent(weights: jax.Array, order: Order, shifted: bool) -> jax.Array:
    """Reorder rows and columns of `[…, heads, N, N]` from turns to agents. `shifted`: column j is
    the action of the agent before turn j, and column 0 is the start token, which stays first."""
    by_turn = jnp.moveaxis(weights, -3, -1)  # […, N, N, heads]
    start, columns = by_turn[..., :1, :], by_turn
    if shifted:  # no agent reads the action of the last one
        columns = jnp.concatenate([by_turn[..., 1:, :], jnp.zeros_like(start)], axis=-2)
    columns = jnp.swapaxes(to_agents(order, jnp.swapaxes(columns, -2, -3)), -2, -3)
    columns = jnp.concatenate([start, columns], axis=-2) if shifted else columns
    return jnp.moveaxis(to_agents(order, columns), -1, -3)


def make_attention(
    agents: tuple[int, ...], weights: dict[tuple[str, int], np.ndarray], order: np.ndarray | None
) -> TeamAttention:
    """From `[T, E, …]` to `[E, T, …]`, with maps in the order of the forward pass."""
    parts = list(PARTS.values())
    keys = sorted(weights, key=lambda at: (at[0] != parts[0], at[1], parts.index(at[0])))
    maps = tuple(Map(*at, np.moveaxis(weights[at], 1, 0)) for at in keys)
    return TeamAttention(agents, maps, None if order is None else np.moveaxis(order, 1, 0))
