"""simple_tag: slow predators in numbers hunt quick prey among obstacles."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from jmarl.envs.mpe.pursuit import captures, out_of_bounds
from jmarl.envs.mpe.world import (
    Agent,
    Cast,
    Landmark,
    World,
    at_rest,
    features,
    others,
    relative,
)
from jmarl.errors import check_int
from jmarl.kernels.short_reductions import total


@dataclass(frozen=True)
class SimpleTag:
    num_good: int = 1
    num_adversaries: int = 3
    num_obstacles: int = 2

    name: ClassVar[str] = "simple_tag"

    def __post_init__(self) -> None:
        check_int("num_good", self.num_good, low=1)
        check_int("num_adversaries", self.num_adversaries, low=1)
        check_int("num_obstacles", self.num_obstacles, low=0)

    @property
    def cast(self) -> Cast:
        predators = (
            Agent(f"adversary_{i}", team="adversary", radius=0.075, accel=3.0, max_speed=1.0)
            for i in range(self.num_adversaries)
        )
        prey = (
            Agent(f"agent_{i}", team="good", radius=0.05, accel=4.0, max_speed=1.3)
            for i in range(self.num_good)
        )
        return Cast(
            agents=(*predators, *prey),
            landmarks=(Landmark("obstacle", radius=0.2, solid=True),) * self.num_obstacles,
            solid_agents=True,
        )

    def start(self, keys: jax.Array) -> World:
        return at_rest(self.cast, keys, landmark_range=0.9)

    def observe(self, world: World) -> list[jax.Array]:
        """Own velocity and place, where obstacles and others are, how fast the (other) prey are."""
        hunters = self.num_adversaries
        around = jnp.concatenate(
            [
                world.vel,
                world.pos,
                features(relative(world.landmarks, world.pos)),
                features(others(relative(world.pos, world.pos))),
            ],
            axis=1,
        )
        prey_vel = world.vel[hunters:]

        def seen_by(count: int) -> jax.Array:
            return jnp.broadcast_to(prey_vel[None], (count, *prey_vel.shape))

        predators = [around[:hunters], features(seen_by(hunters))]
        prey = [around[hunters:], features(others(seen_by(self.num_good)))]
        return [jnp.concatenate(predators, axis=1), jnp.concatenate(prey, axis=1)]

    def reward(self, world: World) -> jax.Array:
        """A capture costs the prey 10 and pays every predator 10; leaving the field costs prey."""
        caught = captures(self.cast, world, self.num_adversaries)
        prey = -10.0 * caught - out_of_bounds(world.pos[self.num_adversaries :])
        paid = jnp.broadcast_to(
            10.0 * total(caught)[None], (self.num_adversaries, caught.shape[-1])
        )
        return jnp.concatenate([paid, prey])
