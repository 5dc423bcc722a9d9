"""simple_world_comm: tag with food, forests to hide in, and a leader that sees all and speaks."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from jmarl.envs.mpe.options import check_count
from jmarl.envs.mpe.pursuit import captures, out_of_bounds
from jmarl.envs.mpe.world import (
    Agent,
    Entities,
    Landmark,
    World,
    at_rest,
    features,
    others,
    relative,
    root,
    square_norm,
    touching,
)
from jmarl.kernels.short_reductions import reduce_unrolled, short_min, short_sum
from jmarl.types import float_dtype

WORDS = 4
FOOD_RADIUS = 0.03
FOREST_RADIUS = 0.3


@dataclass(frozen=True)
class SimpleWorldComm:
    num_good: int = 2
    num_adversaries: int = 4  # the first is the leader
    num_obstacles: int = 1
    num_food: int = 2
    num_forests: int = 2

    name: ClassVar[str] = "simple_world_comm"

    def __post_init__(self) -> None:
        check_count("num_good", self.num_good, low=1)
        check_count("num_adversaries", self.num_adversaries, low=1)
        check_count("num_obstacles", self.num_obstacles, low=0)
        check_count("num_food", self.num_food, low=1)
        check_count("num_forests", self.num_forests, low=0)

    @property
    def entities(self) -> Entities:
        hunter = Agent("", team="adversary", radius=0.075, accel=3.0, max_speed=1.0)
        prey = Agent("", team="good", radius=0.045, accel=4.0, max_speed=1.3)
        return Entities(
            agents=(
                hunter._replace(name="leadadversary_0", speaks=True),
                *(hunter._replace(name=f"adversary_{i}") for i in range(self.num_adversaries - 1)),
                *(prey._replace(name=f"agent_{i}") for i in range(self.num_good)),
            ),
            landmarks=(
                *(Landmark("obstacle", radius=0.2, solid=True),) * self.num_obstacles,
                *(Landmark("food", radius=FOOD_RADIUS),) * self.num_food,
                *(Landmark("forest", radius=FOREST_RADIUS),) * self.num_forests,
            ),
            message_size=WORDS,
            solid_agents=True,
        )

    def start(self, keys: Key[Array, " E"]) -> World:
        return at_rest(self.entities, keys, landmark_range=0.9)

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Own velocity and position, relative positions of landmarks and visible agents, velocities
        of visible (other) prey, which forests the agent is in; for predators also the leader's
        message."""
        hunters, n = self.num_adversaries, self.num_adversaries + self.num_good
        inside = self._inside(world)
        visible = self._visible(inside)[:, :, None]
        speed = jnp.broadcast_to(world.vel[None, hunters:], (n, *world.vel[hunters:].shape))
        prey_vel = speed * visible[:, hunters:]
        around = jnp.concatenate(
            [
                world.vel,
                world.pos,
                features(relative(world.landmarks, world.pos)),
                features(others(relative(world.pos, world.pos) * visible)),
            ],
            axis=1,
        )
        shelter = jnp.where(inside, 1.0, -1.0)
        message = jnp.broadcast_to(world.message, (hunters, *world.message.shape[1:]))
        predators = [around[:hunters], features(prey_vel[:hunters]), shelter[:hunters], message]
        prey = [around[hunters:], shelter[hunters:], features(others(prey_vel[hunters:]))]
        return [jnp.concatenate(predators, axis=1), jnp.concatenate(prey, axis=1)]

    def reward(self, world: World) -> Float[Array, "N E"]:
        """Per capture the prey get -5 and every predator +5. Predators get -0.1 × distance to the
        nearest prey. Prey get +2 per food they touch, -0.05 × distance to the nearest food and
        twice the penalty for leaving the field."""
        hunters, prey = world.pos[: self.num_adversaries], world.pos[self.num_adversaries :]
        caught = captures(self.entities, world, self.num_adversaries)
        chase = root(short_min(square_norm(relative(hunters, prey))))  # to the nearest prey
        food = world.landmarks[self.num_obstacles :][: self.num_food]
        prey_radius = self.entities.radius[self.num_adversaries :]
        eaten = reduce_unrolled(
            lambda count, place: count + touching(prey, prey_radius, place, FOOD_RADIUS),
            jnp.zeros_like(caught),
            food,
        )
        hunger = root(short_min(square_norm(relative(prey, food))))  # to the nearest food
        good = -5.0 * caught - 2.0 * out_of_bounds(prey) + 2.0 * eaten - 0.05 * hunger
        return jnp.concatenate([5.0 * short_sum(caught)[None] - 0.1 * chase, good])

    def info(self, world: World) -> dict[str, Float[Array, " E"]]:
        """Pairs of a predator and prey that touch."""
        caught = captures(self.entities, world, self.num_adversaries)
        return {"collisions": short_sum(caught)}

    def _inside(self, world: World) -> Bool[Array, "N forests E"]:
        """Which agent is in which forest."""
        forests = world.landmarks[self.num_obstacles + self.num_food :]
        reach = (self.entities.radius + FOREST_RADIUS) ** 2
        return square_norm(relative(forests, world.pos)) < reach[:, None, None]

    def _visible(self, inside: Bool[Array, "N forests E"]) -> Float[Array, "N N E"]:
        """i sees j if both are in the same forest or both outside; the leader sees all."""
        in_forest = jnp.moveaxis(inside, 1, 0)  # [forests, N, E]
        n, num_envs = inside.shape[0], inside.shape[-1]
        together = reduce_unrolled(
            lambda found, here: found | (here[:, None] & here[None]),
            jnp.zeros((n, n, num_envs), bool),
            in_forest,
        )
        hidden = reduce_unrolled(jnp.logical_or, jnp.zeros((n, num_envs), bool), in_forest)
        in_the_open = ~hidden[:, None] & ~hidden[None]
        leader = jnp.zeros((n, 1, 1), bool).at[0].set(True)
        return (together | in_the_open | leader).astype(float_dtype())
