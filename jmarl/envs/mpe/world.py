"""Particle physics: discs that move, push and speak, in many worlds simultaneously.

Worlds are the **last** axis, so that every operation is a long vector over worlds: positions are
`[entity, 2, E]`. Reductions over entities are unrolled into elementwise operations
(`jmarl.kernels.short_reductions`): XLA's CPU backend vectorises those, but not a reduction over a
short leading axis, with which the whole step took 2–3 times as long.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Key, Shaped

from jmarl.kernels.short_reductions import reduce_unrolled, short_sum
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
class Entities:
    """The agents and landmarks of a scenario. Static."""

    agents: tuple[Agent, ...]
    landmarks: tuple[Landmark, ...]
    message_size: int = 0  # entries of a message
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
    """The dynamic state of E worlds."""

    pos: Float[Array, "N 2 E"]  # of agents
    vel: Float[Array, "N 2 E"]
    landmarks: Float[Array, "L 2 E"]
    message: Float[Array, "speakers C E"]  # the most recent one
    goal: Int[Array, "G E"]  # indices; the scenario defines their meaning
    own: Any = ()  # what else the scenario keeps; leaves have worlds last


def at_rest(
    entities: Entities,
    keys: Key[Array, " E"],
    landmark_range: float = 1.0,
    goals: tuple[int, ...] = (),
) -> World:
    """Agents uniform in ±1, landmarks in ±`landmark_range`, goal g uniform in 0 … goals[g]-1.
    One key per world."""
    n, num_envs = len(entities.agents), len(keys)
    num_entities = n + len(entities.landmarks)
    # One draw for everything: a generator per quantity would double the compile time.
    draw = partial(jax.random.uniform, shape=(2 * num_entities + len(goals),))
    unit = jax.vmap(draw, out_axes=1)(keys)
    pos = 2.0 * unit[: 2 * num_entities].reshape(num_entities, 2, num_envs) - 1.0
    choices = np.array(goals, float).reshape(-1, 1)
    return World(
        pos=pos[:n],
        vel=jnp.zeros((n, 2, num_envs)),
        landmarks=landmark_range * pos[n:],
        message=jnp.zeros((len(entities.speakers), entities.message_size, num_envs)),
        goal=jnp.floor(unit[2 * num_entities :] * choices).astype(jnp.int32),
    )


def move(
    entities: Entities, world: World, control: Float[Array, "N 2 E"], position_first: bool
) -> World:
    """One step of length dt under `control` and contact forces; masses are 1.

    `position_first`: x ← x + v·dt, then v ← (1-damping)·v + F·dt, as mpe2 integrates; otherwise v
    first, as the on-policy code does.
    """
    moves = np.array([agent.moves for agent in entities.agents], float)
    if not moves.any():
        return world
    force = control + contact_force(entities, world) if entities.solid_agents else control
    if not moves.all():
        force = force * moves[:, None, None]
    vel = limit_speed(entities, world.vel * (1 - DAMPING) + force * DT)
    return world.replace(pos=world.pos + (world.vel if position_first else vel) * DT, vel=vel)


def limit_speed(entities: Entities, vel: Float[Array, "N 2 E"]) -> Float[Array, "N 2 E"]:
    """v · min(1, max_speed / |v|), per agent."""
    top = np.array([agent.max_speed for agent in entities.agents])
    if np.isinf(top).all():
        return vel
    top = top[:, None]
    speed2 = square_norm(vel)
    fast = speed2 > top**2
    # The inner `where` keeps the gradient of a resting agent finite.
    scale = jnp.where(fast, top / jnp.sqrt(jnp.where(fast, speed2, 1.0)), 1.0)
    return vel * scale[:, None]


def contact_force(entities: Entities, world: World) -> Float[Array, "N 2 E"]:
    """Σ over solid others of  c · softplus((r_a + r_b - d) / k) · k · (x_a - x_b) / d.

    A disc exerts no force on itself, nor on one at exactly the same position, because the direction
    is zero.
    """
    obstacles = list(entities.obstacles)
    other = jnp.concatenate([world.pos, world.landmarks[np.array(obstacles, int)]])
    reach = np.concatenate([entities.radius, [entities.landmarks[i].radius for i in obstacles]])

    def push(force: Array, other_and_reach: tuple[Array, Array]) -> Array:
        place, far = other_and_reach
        delta = world.pos - place[None]
        d, safe = distance_and_safe(square_norm(delta))
        overlap = ((entities.radius + far)[:, None] - d) / CONTACT_MARGIN
        depth = CONTACT_MARGIN * (jnp.maximum(overlap, 0) + jnp.log1p(jnp.exp(-jnp.abs(overlap))))
        return force + (CONTACT_FORCE * depth / safe)[:, None] * delta

    return reduce_unrolled(push, jnp.zeros_like(world.pos), (other, reach))


# -- geometry ------------------------------------------------------------------------------------


def square_norm(delta: Float[Array, "*axes 2 E"]) -> Float[Array, "*axes E"]:
    """dx² + dy²."""
    return delta[..., 0, :] ** 2 + delta[..., 1, :] ** 2


def distance_and_safe(
    square: Float[Array, "*axes"],
) -> tuple[Float[Array, "*axes"], Float[Array, "*axes"]]:
    """√s, and √s with 1 in place of 0 as a divisor. The gradient at 0 is 0, not infinite."""
    positive = square > 0
    safe = jnp.sqrt(jnp.where(positive, square, 1.0))
    return jnp.where(positive, safe, 0.0), safe


def root(square: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """√s with gradient 0 at 0."""
    return distance_and_safe(square)[0]


def distance(a: Float[Array, "*n 2 E"], b: Float[Array, "*m 2 E"]) -> Float[Array, "*axes E"]:
    """|a - b|; the leading axes broadcast."""
    return root(square_norm(a - b))


def relative(to: Float[Array, "K 2 E"], pos: Float[Array, "N 2 E"]) -> Float[Array, "N K 2 E"]:
    """The position of each of `to` relative to each of `pos`."""
    return to[None] - pos[:, None]


def touching(
    a: Float[Array, "N 2 E"],
    a_radius: Float[np.ndarray, " N"],
    b: Float[Array, "2 E"],
    b_radius: Float[ArrayLike, ""],
) -> Bool[Array, "N E"]:
    """Which of the discs `a` overlap the one disc `b`."""
    return square_norm(a - b[None]) < ((a_radius + b_radius) ** 2)[:, None]


def others(square: Shaped[Array, "N N *axes"]) -> Shaped[Array, "N N-1 *axes"]:
    """The off-diagonal entries, in order; slices and reshapes only."""
    n, rest = square.shape[0], square.shape[2:]
    flat = square.reshape(n * n, *rest)[1:]
    return flat.reshape(n - 1, n + 1, *rest)[:, :-1].reshape(n, n - 1, *rest)


def features(x: Float[Array, "N *axes E"]) -> Float[Array, "N F E"]:
    """Flatten the middle axes into one axis of features."""
    return x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1])


def select(rows: Float[Array, "K 2 E"], index: Int[Array, " E"]) -> Float[Array, "2 E"]:
    """Row index[e] of world e, as a masked sum instead of a gather."""
    return short_sum(
        jnp.stack([jnp.where(index[None] == k, row, 0.0) for k, row in enumerate(rows)])
    )


def one_hot(index: Shaped[Array, "*axes E"], size: int) -> Float[Array, "*axes {size} E"]:
    grid = np.arange(size).reshape((1,) * (index.ndim - 1) + (size, 1))
    return (index[..., None, :] == grid).astype(float_dtype())


def where_worlds(
    flag: Bool[Array, " E"], a: Shaped[Array, "*axes E"], b: Shaped[Array, "*axes E"]
) -> Shaped[Array, "*axes E"]:
    """`a` in the worlds whose flag is set, else `b`."""
    return jnp.where(flag.reshape((1,) * (a.ndim - 1) + (-1,)), a, b)
