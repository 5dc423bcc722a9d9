"""Particle physics: discs that move, push and speak, for many worlds at once.

Worlds lie on the **last** axis, so that every operation is a long vector over worlds: positions
are `[entity, 2, E]`. Reductions over entities are written as folds of elementwise operations
(`jmarl.kernels.short_reductions`): XLA's CPU backend vectorises those, but not a reduction over a
short leading axis, which measured 2–3 times slower on the whole step.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jmarl.kernels.short_reductions import fold, total
from jmarl.types import float_dtype

DT = 0.1
DAMPING = 0.25
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 1e-3


class Agent(NamedTuple):
    name: str
    team: str = "agents"
    radius: float = 0.05
    moves: bool = True
    speaks: bool = False
    accel: float = 5.0
    max_speed: float = math.inf


class Landmark(NamedTuple):
    kind: str = "landmark"
    radius: float = 0.05
    solid: bool = False  # agents bounce off it


@dataclass(frozen=True)
class Cast:
    """Who and what is in a world; fixed for all time."""

    agents: tuple[Agent, ...]
    landmarks: tuple[Landmark, ...]
    message_size: int = 0  # entries of an utterance
    solid_agents: bool = False  # agents bounce off each other and off solid landmarks

    @property
    def speakers(self) -> tuple[int, ...]:
        return tuple(i for i, agent in enumerate(self.agents) if agent.speaks)

    @property
    def obstacles(self) -> tuple[int, ...]:
        return tuple(i for i, landmark in enumerate(self.landmarks) if landmark.solid)

    @property
    def radius(self) -> np.ndarray:
        return np.array([agent.radius for agent in self.agents])


class World(struct.PyTreeNode):
    """The moving part of E worlds."""

    pos: jax.Array  # [N, 2, E] of agents
    vel: jax.Array  # [N, 2, E]
    landmarks: jax.Array  # [L, 2, E]
    message: jax.Array  # [speakers, C, E] what was last said
    goal: jax.Array  # [G, E] indices, with the meaning that the scenario gives them


def at_rest(
    cast: Cast,
    keys: jax.Array,
    landmark_range: float = 1.0,
    goals: tuple[int, ...] = (),
) -> World:
    """Agents uniform in ±1, landmarks in ±`landmark_range`, goal g uniform in 0 … goals[g]-1.
    `keys` `[E]`: one for each world."""
    n, places, num_envs = len(cast.agents), len(cast.agents) + len(cast.landmarks), len(keys)
    # one draw for everything: a generator per quantity would double the compile time
    draw = partial(jax.random.uniform, shape=(2 * places + len(goals),))
    unit = jax.vmap(draw, out_axes=1)(keys)
    place = 2.0 * unit[: 2 * places].reshape(places, 2, num_envs) - 1.0
    choices = np.array(goals, float).reshape(-1, 1)
    return World(
        pos=place[:n],
        vel=jnp.zeros((n, 2, num_envs)),
        landmarks=landmark_range * place[n:],
        message=jnp.zeros((len(cast.speakers), cast.message_size, num_envs)),
        goal=jnp.floor(unit[2 * places :] * choices).astype(jnp.int32),
    )


def move(cast: Cast, world: World, control: jax.Array, position_first: bool) -> World:
    """One step of dt under `control` `[N, 2, E]` and contact forces; masses are 1.

    `position_first`: x ← x + v·dt, then v ← (1-damping)·v + F·dt, as mpe2 integrates;
    otherwise v first, as on-policy does.
    """
    moves = np.array([agent.moves for agent in cast.agents], float)
    if not moves.any():
        return world
    force = control + contact_force(cast, world) if cast.solid_agents else control
    if not moves.all():
        force = force * moves[:, None, None]
    vel = limit_speed(cast, world.vel * (1 - DAMPING) + force * DT)
    return world.replace(pos=world.pos + (world.vel if position_first else vel) * DT, vel=vel)


def limit_speed(cast: Cast, vel: jax.Array) -> jax.Array:
    """v · min(1, max_speed / |v|), per agent."""
    top = np.array([agent.max_speed for agent in cast.agents])
    if np.isinf(top).all():
        return vel
    top = top[:, None]
    speed2 = square_norm(vel)
    fast = speed2 > top**2
    # the inner `where` keeps the gradient of a resting agent finite
    scale = jnp.where(fast, top / jnp.sqrt(jnp.where(fast, speed2, 1.0)), 1.0)
    return vel * scale[:, None]


def contact_force(cast: Cast, world: World) -> jax.Array:
    """[N, 2, E]: Σ over solid others of  c · softplus((r_a + r_b - d) / k) · k · (x_a - x_b) / d.

    The force of a disc on itself, or on one at exactly its own place, is zero: the direction is.
    """
    obstacles = list(cast.obstacles)
    other = jnp.concatenate([world.pos, world.landmarks[np.array(obstacles, int)]])
    reach = np.concatenate([cast.radius, [cast.landmarks[i].radius for i in obstacles]])

    def push(force: jax.Array, other_and_reach: tuple[jax.Array, jax.Array]) -> jax.Array:
        place, far = other_and_reach
        delta = world.pos - place[None]
        d, safe = distance_and_safe(square_norm(delta))
        overlap = ((cast.radius + far)[:, None] - d) / CONTACT_MARGIN
        depth = CONTACT_MARGIN * (jnp.maximum(overlap, 0) + jnp.log1p(jnp.exp(-jnp.abs(overlap))))
        return force + (CONTACT_FORCE * depth / safe)[:, None] * delta

    return fold(push, jnp.zeros_like(world.pos), (other, reach))


# -- geometry ------------------------------------------------------------------------------------


def square_norm(delta: jax.Array) -> jax.Array:
    """[…, 2, E] → […, E]: dx² + dy²."""
    return delta[..., 0, :] ** 2 + delta[..., 1, :] ** 2


def distance_and_safe(square: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(√s, the same with 1 in place of 0): the root's gradient at 0 is 0, not infinite."""
    positive = square > 0
    safe = jnp.sqrt(jnp.where(positive, square, 1.0))
    return jnp.where(positive, safe, 0.0), safe


def root(square: jax.Array) -> jax.Array:
    """√s with gradient 0 at 0."""
    return distance_and_safe(square)[0]


def distance(a: jax.Array, b: jax.Array) -> jax.Array:
    """[…, 2, E] × […, 2, E] → […, E]."""
    return root(square_norm(a - b))


def relative(to: jax.Array, pos: jax.Array) -> jax.Array:
    """[N, K, 2, E]: where each of `to` `[K, 2, E]` is as seen from each of `pos` `[N, 2, E]`."""
    return to[None] - pos[:, None]


def touching(
    a: jax.Array, a_radius: np.ndarray, b: jax.Array, b_radius: float | jax.Array
) -> jax.Array:
    """[N, E] bool: discs `a` `[N, 2, E]` overlap the one disc `b` `[2, E]`."""
    return square_norm(a - b[None]) < ((a_radius + b_radius) ** 2)[:, None]


def others(square: jax.Array) -> jax.Array:
    """[N, N, …] → [N, N-1, …] without the diagonal, order kept; slices and reshapes only."""
    n, rest = square.shape[0], square.shape[2:]
    flat = square.reshape(n * n, *rest)[1:]
    return flat.reshape(n - 1, n + 1, *rest)[:, :-1].reshape(n, n - 1, *rest)


def features(x: jax.Array) -> jax.Array:
    """[N, …, E] → [N, F, E]: the axes between as one list of features."""
    return x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1])


def pick(rows: jax.Array, index: jax.Array) -> jax.Array:
    """[K, 2, E], [E] → [2, E]: row index[e] of world e, as a sum of selections, not a gather."""
    return total(jnp.stack([jnp.where(index[None] == k, row, 0.0) for k, row in enumerate(rows)]))


def one_hot(index: jax.Array, size: int) -> jax.Array:
    """[…, E] integers → […, size, E]."""
    grid = np.arange(size).reshape((1,) * (index.ndim - 1) + (size, 1))
    return (index[..., None, :] == grid).astype(float_dtype())
