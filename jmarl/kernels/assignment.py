"""One place for each agent, with the least sum of costs: the assignment problem, in many worlds
simultaneously."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

SUBSETS_LIMIT = 6  # of more places there are too many


def assigned_costs_reference(cost: Float[Array, "N N E"]) -> Float[Array, "N E"]:
    """cost[i, π(i)] of the permutation π with the least Σ_i cost[i, π(i)]."""
    agents = np.arange(len(cost))
    orders = np.array(list(itertools.permutations(agents)))
    best = cost[agents, orders].sum(1).argmin(0)
    return jnp.take_along_axis(cost, jnp.asarray(orders)[best].T[:, None], axis=1)[:, 0]


def assigned_costs(cost: Float[Array, "N N E"]) -> Float[Array, "N E"]:
    """The same, in N·2ᴺ/2 vector operations for few agents, else in N³ steps."""
    if len(cost) <= SUBSETS_LIMIT:
        return _by_subsets(cost)
    # The assignment is piecewise constant, so the gradient is that of the chosen costs.
    place = jax.vmap(_augmented, in_axes=-1, out_axes=-1)(lax.stop_gradient(cost))
    return jnp.take_along_axis(cost, place[:, None], axis=1)[:, 0]


def _by_subsets(cost: Float[Array, "N N E"]) -> Float[Array, "N E"]:
    """With the least sum, and its costs, of the first i agents at every set of i places."""
    n, num_worlds = len(cost), cost.shape[-1]
    subsets, best = [()], (jnp.zeros((1, num_worlds)), jnp.zeros((0, 1, num_worlds)))
    for i in range(n):
        before = {places: row for row, places in enumerate(subsets)}
        subsets = list(itertools.combinations(range(n), i + 1))
        ways = (_join(best, cost[i], *_last(subsets, before, k)) for k in range(i + 1))
        best = functools.reduce(_least, ways)
    return best[1][:, 0]


# of sets of places: sums [sets, E], costs [agents, sets, E]
Best = tuple[Float[Array, "_ E"], Float[Array, "_ _ E"]]


def _last(
    subsets: list[tuple[int, ...]], before: dict[tuple[int, ...], int], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k-th place of every set, and the row of the set without it."""
    without = [before[places[:k] + places[k + 1 :]] for places in subsets]
    return np.array([places[k] for places in subsets]), np.array(without)


def _join(best: Best, cost: Float[Array, "N E"], place: np.ndarray, without: np.ndarray) -> Best:
    """One more agent, at `place` of every set."""
    total, costs = best
    own = cost[place]
    return total[without] + own, jnp.concatenate([costs[:, without], own[None]])


def _least(one: Best, other: Best) -> Best:
    smaller = other[0] < one[0]
    return jax.tree.map(lambda a, b: jnp.where(smaller, b, a), one, other)


def _augmented(cost: Float[Array, "N N"]) -> Int[Array, " N"]:
    """The place of each agent, of one world: agents are added one by one, each along the shortest
    augmenting path (Kuhn 1955, Munkres 1957). Column N stands for the agent that is added."""
    n = len(cost)

    def add(i: Array, known: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        u, v, agent = known  # potentials of agents and places; who is at a place, -1: nobody
        agent = agent.at[n].set(i)
        far = jnp.full(n, jnp.inf, cost.dtype)
        start = (jnp.full(n, n), jnp.zeros(n + 1, bool), jnp.asarray(n), far, u, v)
        way, _, place, _, u, v = lax.while_loop(
            lambda path: agent[path[2]] >= 0, lambda path: _grow(cost, agent, path), start
        )
        return u, v, _shift(agent, way, place)

    begin = (jnp.zeros(n, cost.dtype), jnp.zeros(n + 1, cost.dtype), jnp.full(n + 1, -1))
    _, _, agent = lax.fori_loop(0, n, add, begin)
    return jnp.zeros(n, int).at[agent[:n]].set(jnp.arange(n))


# place before each on its path, places on the tree, last place, slack, potentials
Path = tuple[Array, Array, Array, Array, Array, Array]


def _grow(cost: Float[Array, "N N"], agent: Int[Array, " places"], path: Path) -> Path:
    """Add the place with the least slack to the tree of shortest paths."""
    way, tree, place, slack, u, v = path
    n = len(cost)
    tree = tree.at[place].set(True)
    reduced = cost[agent[place]] - u[agent[place]] - v[:n]
    nearer = ~tree[:n] & (reduced < slack)
    way, slack = jnp.where(nearer, place, way), jnp.where(nearer, reduced, slack)
    outside = jnp.where(tree[:n], jnp.inf, slack)
    least = outside.min()
    u = u.at[jnp.where(tree, agent, n)].add(least, mode="drop")
    v = v - jnp.where(tree, least, 0.0)
    return way, tree, outside.argmin(), jnp.where(tree[:n], slack, slack - least), u, v


def _shift(
    agent: Int[Array, " places"], way: Int[Array, " N"], place: Int[Array, ""]
) -> Int[Array, " places"]:
    """Every agent on the path moves to the next place."""

    def back(state: tuple[Array, Array]) -> tuple[Array, Array]:
        agent, place = state
        return agent.at[place].set(agent[way[place]]), way[place]

    return lax.while_loop(lambda state: state[1] < len(way), back, (agent, place))[0]
