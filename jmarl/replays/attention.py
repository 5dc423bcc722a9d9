"""Which agent looks at which while a transformer decides: maps by agent, step by step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.networks.attention_maps import overheard
from jmarl.policies.agent_order import Order, to_agents
from jmarl.policies.base import Policy
from jmarl.policies.mat import MatPolicy
from jmarl.types import Perception

# an attention's name in its block → what it is called here
PARTS = {"attn": "views", "attn1": "actions", "attn2": "decision"}


class Watched(NamedTuple):
    """What a team saw and did, `[T, E, …]`: enough to compute its decisions again."""

    seen: Perception
    action: jax.Array
    context: Any


class Map(NamedTuple):
    """Of the encoder's attention among `views` the columns are agents. The decoder's two read what
    agents before have done: their first column is the start, where nobody has done anything."""

    part: str  # of PARTS
    block: int
    weights: np.ndarray  # [E, T, heads, N, N], or N + 1 columns


class Attention(NamedTuple):
    """Of one team's transformer; rows and columns are its agents, whatever the order of turns."""

    agents: tuple[int, ...]
    maps: tuple[Map, ...]
    order: np.ndarray | None  # [E, T, N]: who decided first, second, …; None: as listed


def attention_of(policy: Policy, params: Any, watched: Watched) -> dict[tuple[str, int], jax.Array]:
    """Weights `[T, E, heads, N, columns]` by part and block; none where nothing attends. Computed
    by the parallel pass, whose numbers are those of acting."""
    if not isinstance(policy, MatPolicy):
        return {}
    seen, action, order = watched
    heard = overheard(lambda: policy.evaluate(params, order, seen, action))
    found = {}
    for path, weights in heard.items():
        part, block = PARTS[path[-1]], int(path[-2].rpartition("_")[2])
        found[part, block] = by_agent(weights, order, told=part != "views")
    return found


def by_agent(weights: jax.Array, order: Order, told: bool) -> jax.Array:
    """`[…, heads, N, N]` by turn → by agent. `told`: column j is what the agent before turn j did,
    and the first is the start, which stays in front."""
    by_turn = jnp.moveaxis(weights, -3, -1)  # […, N, N, heads]
    start, heard = by_turn[..., :1, :], by_turn
    if told:  # nobody is told of the last agent's action
        heard = jnp.concatenate([by_turn[..., 1:, :], jnp.zeros_like(start)], axis=-2)
    heard = jnp.swapaxes(to_agents(order, jnp.swapaxes(heard, -2, -3)), -2, -3)
    columns = jnp.concatenate([start, heard], axis=-2) if told else heard
    return jnp.moveaxis(to_agents(order, columns), -1, -3)


def gathered(
    agents: tuple[int, ...], found: dict[tuple[str, int], np.ndarray], order: np.ndarray | None
) -> Attention:
    """From `[T, E, …]` to `[E, T, …]`, in the order in which they are computed."""
    parts = list(PARTS.values())
    told = sorted(found, key=lambda at: (at[0] != parts[0], at[1], parts.index(at[0])))
    maps = tuple(Map(*at, np.moveaxis(found[at], 1, 0)) for at in told)
    return Attention(agents, maps, None if order is None else np.moveaxis(order, 1, 0))
