"""simple: one agent goes to one landmark."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from jmarl.envs.mpe.world import (
    Agent,
    Cast,
    Landmark,
    World,
    at_rest,
    features,
    relative,
    square_norm,
)


@dataclass(frozen=True)
class Simple:
    name: ClassVar[str] = "simple"

    @property
    def cast(self) -> Cast:
        return Cast(agents=(Agent("agent_0"),), landmarks=(Landmark(),))

    def start(self, keys: jax.Array) -> World:
        return at_rest(self.cast, keys)

    def observe(self, world: World) -> list[jax.Array]:
        """Own velocity, where the landmark is."""
        return [
            jnp.concatenate([world.vel, features(relative(world.landmarks, world.pos))], axis=1)
        ]

    def reward(self, world: World) -> jax.Array:
        """-d²"""
        return -square_norm(world.pos - world.landmarks)
