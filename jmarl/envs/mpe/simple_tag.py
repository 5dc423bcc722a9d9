"""simple_tag: several slow predators hunt faster prey among obstacles."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from jmarl.envs.mpe.neighbours import nearest_others, seen_landmarks
from jmarl.envs.mpe.options import check_count, check_curriculum, check_neighbours
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
)
from jmarl.errors import check_bool
from jmarl.kernels.short_reductions import short_min, short_sum

PREY_SPEED = (0.5, 0.75, 1.0)  # by stage of the curriculum


@dataclass(frozen=True)
class SimpleTag:
    num_good: int = 1
    num_adversaries: int = 3
    num_obstacles: int = 2
    num_agent_neighbors: int | None = None  # how many other agents are seen; None: all
    num_landmark_neighbors: int | None = None
    terminate_on_success: bool = False  # end when all prey are caught
    curriculum: bool = False
    curriculum_stage: int = 0  # prey are at 50, 75, 100 % of their speed and acceleration

    name: ClassVar[str] = "simple_tag"

    def __post_init__(self) -> None:
        check_count("num_good", self.num_good, low=1)
        check_count("num_adversaries", self.num_adversaries, low=1)
        check_count("num_obstacles", self.num_obstacles, low=0)
        check_neighbours(self.num_agent_neighbors, self.num_landmark_neighbors)
        check_bool("terminate_on_success", self.terminate_on_success)
        check_curriculum(self.curriculum, self.curriculum_stage, len(PREY_SPEED))

    @property
    def entities(self) -> Entities:
        predators = (
            Agent(f"adversary_{i}", team="adversary", radius=0.075, accel=3.0, max_speed=1.0)
            for i in range(self.num_adversaries)
        )
        fast = PREY_SPEED[self.curriculum_stage] if self.curriculum else 1.0
        prey = (
            Agent(f"agent_{i}", team="good", radius=0.05, accel=4.0 * fast, max_speed=1.3 * fast)
            for i in range(self.num_good)
        )
        return Entities(
            agents=(*predators, *prey),
            landmarks=(Landmark("obstacle", radius=0.2, solid=True),) * self.num_obstacles,
            solid_agents=True,
        )

    def start(self, keys: Key[Array, " E"]) -> World:
        return at_rest(self.entities, keys, landmark_range=0.9)

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Own velocity and position, relative positions of obstacles and other agents, velocities
        of the (other) prey."""
        obstacles = seen_landmarks(world, self.num_landmark_neighbors)
        own = [world.vel, world.pos, features(obstacles)]
        if self.num_agent_neighbors is not None:
            return [
                jnp.concatenate(
                    [*own, *self._nearest_agents(world, self.num_agent_neighbors)], axis=1
                )
            ]
        hunters = self.num_adversaries
        around = jnp.concatenate([*own, features(others(relative(world.pos, world.pos)))], axis=1)
        prey_vel = world.vel[hunters:]

        def repeated(count: int) -> Array:
            return jnp.broadcast_to(prey_vel[None], (count, *prey_vel.shape))

        predators = [around[:hunters], features(repeated(hunters))]
        prey = [around[hunters:], features(others(repeated(self.num_good)))]
        return [jnp.concatenate(predators, axis=1), jnp.concatenate(prey, axis=1)]

    def _nearest_agents(self, world: World, count: int) -> list[Float[Array, "N _ E"]]:
        """Relative positions, then velocities; those of predators are 0."""
        is_prey = np.arange(len(world.pos)) >= self.num_adversaries
        rows = jnp.concatenate([world.pos, world.vel * is_prey[:, None, None]], axis=1)
        seen = nearest_others(world.pos, rows, count)
        return [features(seen[:, :, :2]), features(seen[:, :, 2:])]

    def reward(self, world: World) -> Float[Array, "N E"]:
        """Per capture the prey get -10 and every predator +10; prey are penalised for leaving the
        field."""
        caught = captures(self.entities, world, self.num_adversaries)
        prey = -10.0 * caught - out_of_bounds(world.pos[self.num_adversaries :])
        predators = jnp.broadcast_to(
            10.0 * short_sum(caught)[None], (self.num_adversaries, caught.shape[-1])
        )
        return jnp.concatenate([predators, prey])

    def success(self, world: World) -> Bool[Array, " E"]:
        """All prey are caught at once."""
        return short_min(captures(self.entities, world, self.num_adversaries)) > 0

    def info(self, world: World) -> dict[str, Float[Array, " E"]]:
        """Pairs of a predator and prey that touch."""
        caught = captures(self.entities, world, self.num_adversaries)
        return {"collisions": short_sum(caught)}
