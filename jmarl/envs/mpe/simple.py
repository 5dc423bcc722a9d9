"""simple: one agent goes to one landmark."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jmarl.envs.mpe.world import (
    Agent,
    Entities,
    Landmark,
    World,
    at_rest,
    distance,
    features,
    relative,
    square_norm,
)


@dataclass(frozen=True)
class Simple:
    name: ClassVar[str] = "simple"

    @property
    def entities(self) -> Entities:
        return Entities(agents=(Agent("agent_0"),), landmarks=(Landmark(),))

    def start(self, keys: Key[Array, " E"]) -> World:
        return at_rest(self.entities, keys)

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Own velocity, relative position of the landmark."""
        return [
            jnp.concatenate([world.vel, features(relative(world.landmarks, world.pos))], axis=1)
        ]

    def reward(self, world: World) -> Float[Array, "N E"]:
        """-d²"""
        return -square_norm(world.pos - world.landmarks)

    def info(self, world: World) -> dict[str, Float[Array, " E"]]:
        return {"distance": distance(world.pos, world.landmarks)[0]}
