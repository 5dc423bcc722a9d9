"""simple_reference: two agents, each told which of three landmarks the *other* must reach."""

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
    one_hot,
    pick,
    relative,
    root,
    square_norm,
)
from jmarl.errors import check_float
from jmarl.kernels.short_reductions import total

WORDS = 10
COLOURS = 3  # landmark k is bright in colour k


@dataclass(frozen=True)
class SimpleReference:
    local_ratio: float = 0.5  # of each agent's own errand in its reward (mpe2)
    dialect: str = "mpe2"

    name: ClassVar[str] = "simple_reference"

    def __post_init__(self) -> None:
        check_float("local_ratio", self.local_ratio, 0.0, 1.0)

    @property
    def cast(self) -> Cast:
        return Cast(
            agents=tuple(Agent(f"agent_{i}", speaks=True) for i in range(2)),
            landmarks=(Landmark(),) * COLOURS,
            message_size=WORDS,
        )

    def start(self, keys: jax.Array) -> World:
        """goal[i]: the landmark that agent i knows and the other must reach."""
        landmark_range = 1.0 if self.dialect == "mpe2" else 0.8
        return at_rest(self.cast, keys, landmark_range, goals=(COLOURS, COLOURS))

    def observe(self, world: World) -> list[jax.Array]:
        """Own velocity, where landmarks are, the colour of the other's goal, the other's word."""
        seen = [
            world.vel,
            features(relative(world.landmarks, world.pos)),
            0.25 + 0.5 * one_hot(world.goal, COLOURS),
            world.message[::-1],
        ]
        return [jnp.concatenate(seen, axis=1)]

    def reward(self, world: World) -> jax.Array:
        """With d_i the distance of the agent that i directs to its goal:
        mpe2  r_i = -(1-ρ)·mean(d) - ρ·d_i;  on-policy  r = -Σ d², the same for all."""
        target = jnp.stack([pick(world.landmarks, goal) for goal in world.goal])
        square = square_norm(world.pos[::-1] - target)
        if self.dialect == "onpolicy":
            return jnp.broadcast_to(-total(square)[None], square.shape)
        d = root(square)
        return -(1 - self.local_ratio) * total(d)[None] / 2 - self.local_ratio * d
