"""collect_treasure: collectors pick up treasures and carry each to the deposit of its type."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from jmarl.envs.mpe.neighbours import nearest, nearest_others
from jmarl.envs.mpe.options import check_count
from jmarl.envs.mpe.simple_spread import collisions
from jmarl.envs.mpe.world import (
    Agent,
    Entities,
    Landmark,
    World,
    at_rest,
    features,
    one_hot,
    relative,
    root,
    square_norm,
)
from jmarl.errors import check_int
from jmarl.kernels.short_reductions import UNROLL_LIMIT, short_min, short_sum
from jmarl.types import float_dtype

NONE = -1  # no type: a treasure that was picked up, a collector that holds nothing
COLLECTOR_RADIUS, DEPOSIT_RADIUS, TREASURE_RADIUS = 0.05, 0.075, 0.025
FIELD = 0.95  # treasures lie within ±FIELD
MOST_DEPOSITS = 6  # mpe2 has no more colours
DEPOSIT_MASS = 2.25
PRIZE = 5.0  # for a pickup or a delivery, to all
BUMP = 5.0  # cost of touching another collector
NEARNESS = 0.1  # cost of a unit of distance from where an agent should be


class Treasures(NamedTuple):
    """What lies where and who holds what, by type of treasure."""

    kind: Int[Array, "K E"]  # of treasures
    held: Int[Array, "C E"]  # by collectors
    pickups: Int[Array, " E"]  # in the last step
    deliveries: Int[Array, " E"]


@dataclass(frozen=True)
class CollectTreasure:
    num_collectors: int = 6
    num_deposits: int = 2  # deposit k takes treasures of type k
    num_treasures: int = 6

    name: ClassVar[str] = "collect_treasure"

    def __post_init__(self) -> None:
        check_count("num_collectors", self.num_collectors, low=1)
        check_int("num_deposits", self.num_deposits, low=1, high=MOST_DEPOSITS)
        check_count("num_treasures", self.num_treasures, low=1)

    @property
    def entities(self) -> Entities:
        collector = Agent("", radius=COLLECTOR_RADIUS, accel=1.5, max_speed=1.0)
        deposit = Agent("", radius=DEPOSIT_RADIUS, accel=1.5 / DEPOSIT_MASS, max_speed=1.0)
        return Entities(
            agents=(
                *(collector._replace(name=f"collector_{i}") for i in range(self.num_collectors)),
                *(deposit._replace(name=f"deposit_{i}") for i in range(self.num_deposits)),
            ),
            landmarks=(Landmark("treasure", radius=TREASURE_RADIUS),) * self.num_treasures,
        )

    def start(self, keys: Key[Array, " E"]) -> World:
        kinds = (self.num_deposits,) * self.num_treasures
        world = at_rest(self.entities, keys, FIELD, goals=kinds)
        zero = jnp.zeros(len(keys), jnp.int32)
        held = jnp.full((self.num_collectors, len(keys)), NONE, jnp.int32)
        return world.replace(goal=world.goal[:0], own=Treasures(world.goal, held, zero, zero))

    # -- what happens after a move ---------------------------------------------------------------

    def draw(self, keys: Key[Array, " E"]) -> Float[Array, "D E"]:
        """Uniform in [0, 1): where each treasure would appear again, and of which type."""
        shape = (3 * self.num_treasures,)
        return jax.vmap(partial(jax.random.uniform, shape=shape), out_axes=1)(keys)

    def happen(self, world: World, drawn: Float[Array, "D E"]) -> World:
        """Treasures on which an empty collector stands are picked up; those that were picked up
        earlier appear again. Then collectors at the right deposit deliver."""
        k, own = self.num_treasures, world.own
        place = FIELD * (2 * drawn[: 2 * k].reshape(k, 2, -1) - 1)
        kind = jnp.floor(drawn[2 * k :] * self.num_deposits).astype(jnp.int32)
        gone = own.kind == NONE
        lie = jnp.where(gone[:, None], place, world.landmarks)
        touched = self._at(world, world.landmarks, TREASURE_RADIUS)  # [C, K, E]
        held, taken = self._pick_up(own, jnp.moveaxis(touched, 1, 0))
        deposits = world.pos[self.num_collectors :]
        own_deposit = one_hot(held, self.num_deposits) > 0
        delivered = (self._at(world, deposits, DEPOSIT_RADIUS) & own_deposit).any(1)
        after = Treasures(
            kind=jnp.where(gone, kind, jnp.where(taken, NONE, own.kind)),
            held=jnp.where(delivered, NONE, held),
            pickups=taken.sum(0, dtype=jnp.int32),
            deliveries=delivered.sum(0, dtype=jnp.int32),
        )
        return world.replace(landmarks=lie, own=after)

    def _at(
        self, world: World, places: Float[Array, "P 2 E"], radius: float
    ) -> Bool[Array, "C P E"]:
        """Which collector touches which disc."""
        square = square_norm(relative(places, world.pos[: self.num_collectors]))
        return square < (COLLECTOR_RADIUS + radius) ** 2

    def _pick_up(
        self, own: Treasures, touched: Bool[Array, "K C E"]
    ) -> tuple[Int[Array, "C E"], Bool[Array, "K E"]]:
        """What collectors then hold, and which treasures are taken: in order of the treasures,
        each by the first empty collector that touches it."""
        number = np.arange(self.num_collectors)[:, None]

        def one(held: Array, treasure: tuple[Array, Array]) -> tuple[Array, Array]:
            kind, touch = treasure
            able = touch & (held == NONE) & (kind != NONE)[None]
            first = short_min(jnp.where(able, number, self.num_collectors))[None]
            return jnp.where(number == first, kind[None], held), able.any(0)

        short = self.num_treasures <= UNROLL_LIMIT
        return lax.scan(one, own.held, (own.kind, touched), unroll=short)

    # -- views and rewards -----------------------------------------------------------------------

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Own position and velocity; for collectors the type they hold. Then, nearest first, all
        other agents (relative position, velocity, type they take, type they hold) and treasures
        (relative position, type; zeros for those that are gone, at the end)."""
        count, own = self.num_collectors, jnp.concatenate([world.pos, world.vel], axis=1)
        held = one_hot(world.own.held, self.num_deposits)
        agents = features(self._agents_around(world, held))
        treasures = features(self._treasures_around(world))
        collectors = [own[:count], held, agents[:count], treasures[:count]]
        deposits = [own[count:], agents[count:], treasures[count:]]
        return [jnp.concatenate(blocks, axis=1) for blocks in (collectors, deposits)]

    def _agents_around(
        self, world: World, held: Float[Array, "C T E"]
    ) -> Float[Array, "N others F E"]:
        n, types, num_envs = len(world.pos), self.num_deposits, world.pos.shape[-1]
        takes = np.zeros((n, types, 1))
        takes[self.num_collectors :, :, 0] = np.eye(types)
        holds = jnp.pad(held, ((0, types), (0, 0), (0, 0)))
        known = [world.pos, world.vel, jnp.broadcast_to(takes, (n, types, num_envs)), holds]
        return nearest_others(world.pos, jnp.concatenate(known, axis=1), n - 1)

    def _treasures_around(self, world: World) -> Float[Array, "N K F E"]:
        kind = world.own.kind
        rows = jnp.concatenate([world.landmarks, one_hot(kind, self.num_deposits)], axis=1)
        found = nearest(world.pos, rows, len(rows), (kind == NONE)[None])
        gone = ~(found[:, :, 2:] > 0).any(2, keepdims=True)
        return jnp.where(gone, 0.0, found)

    def reward(self, world: World) -> Float[Array, "N E"]:
        """All get +5 for every pickup and delivery. Collectors get -5 for every collector they
        touch, and -0.1 × distance to the nearest treasure or, if they hold one, to its deposit.
        Deposits get -0.1 × distance to the nearest collector that holds their type or, if nobody
        does, to the mean of the collectors."""
        count, own = self.num_collectors, world.own
        bumps = collisions(world.pos[:count], self.entities.radius[:count])
        collectors = -BUMP * bumps - NEARNESS * root(self._square_to_aim(world))
        deposits = -NEARNESS * root(self._square_to_carrier(world))
        shared = PRIZE * (own.pickups + own.deliveries)[None]
        return shared + jnp.concatenate([collectors, deposits])

    def _square_to_aim(self, world: World) -> Float[Array, "C E"]:
        """From each collector, squared; 0 where there is nothing to go to."""
        collectors, deposits = world.pos[: self.num_collectors], world.pos[self.num_collectors :]
        held, gone = world.own.held, (world.own.kind == NONE)[:, None]
        to_treasure = square_norm(relative(collectors, world.landmarks))
        closest = short_min(jnp.where(gone, jnp.inf, to_treasure))
        closest = jnp.where(gone.all(0), 0.0, closest)
        to_deposit = square_norm(relative(collectors, deposits))
        own = held[None] == np.arange(self.num_deposits)[:, None, None]
        return jnp.where(held == NONE, closest, short_sum(jnp.where(own, to_deposit, 0.0)))

    def _square_to_carrier(self, world: World) -> Float[Array, "D E"]:
        """From each deposit, squared."""
        collectors, deposits = world.pos[: self.num_collectors], world.pos[self.num_collectors :]
        carries = world.own.held[:, None] == np.arange(self.num_deposits)[None, :, None]
        square = square_norm(relative(deposits, collectors))
        closest = short_min(jnp.where(carries, square, jnp.inf))
        mean = short_sum(collectors) / self.num_collectors
        return jnp.where(carries.any(0), closest, square_norm(deposits - mean[None]))

    def info(self, world: World) -> dict[str, Float[Array, " E"]]:
        own, dtype = world.own, float_dtype()
        return {
            "pickups": own.pickups.astype(dtype),
            "deliveries": own.deliveries.astype(dtype),
            "carriers": (own.held != NONE).sum(0).astype(dtype),
            "treasures": (own.kind != NONE).sum(0).astype(dtype),
        }
