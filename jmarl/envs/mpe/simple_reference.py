"""simple_reference: two agents; each knows which of three landmarks the *other* must reach."""

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
    features,
    one_hot,
    relative,
    root,
    select,
    square_norm,
)
from jmarl.errors import check_float
from jmarl.kernels.short_reductions import short_sum

WORDS = 10
COLOURS = 3  # landmark k is bright in colour k


@dataclass(frozen=True)
class SimpleReference:
    local_ratio: float = 0.5  # weight of an agent's own distance in its reward (mpe2)
    dialect: str = "mpe2"

    name: ClassVar[str] = "simple_reference"

    def __post_init__(self) -> None:
        check_float("local_ratio", self.local_ratio, 0.0, 1.0)

    @property
    def entities(self) -> Entities:
        return Entities(
            agents=tuple(Agent(f"agent_{i}", speaks=True) for i in range(2)),
            landmarks=(Landmark(),) * COLOURS,
            message_size=WORDS,
        )

    def start(self, keys: Key[Array, " E"]) -> World:
        """goal[i]: the landmark that agent i knows and the other must reach."""
        landmark_range = 1.0 if self.dialect == "mpe2" else 0.8
        return at_rest(self.entities, keys, landmark_range, goals=(COLOURS, COLOURS))

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Own velocity, relative positions of landmarks, the other's goal colour and message."""
        blocks = [
            world.vel,
            features(relative(world.landmarks, world.pos)),
            0.25 + 0.5 * one_hot(world.goal, COLOURS),
            world.message[::-1],
        ]
        return [jnp.concatenate(blocks, axis=1)]

    def reward(self, world: World) -> Float[Array, "N E"]:
        """With d_i the distance to its goal of the agent that i directs:
        mpe2  r_i = -(1-ρ)·mean(d) - ρ·d_i;  on-policy  r = -Σ d² for both."""
        square = self._squares(world)
        if self.dialect == "onpolicy":
            return jnp.broadcast_to(-short_sum(square)[None], square.shape)
        d = root(square)
        return -(1 - self.local_ratio) * short_sum(d)[None] / 2 - self.local_ratio * d

    def info(self, world: World) -> dict[str, Float[Array, " E"]]:
        """The mean distance of agents from their goals."""
        return {"distance": short_sum(root(self._squares(world))) / 2}

    def _squares(self, world: World) -> Float[Array, "N E"]:
        """Squared distance to its goal of the agent that i directs."""
        target = jnp.stack([select(world.landmarks, goal) for goal in world.goal])
        return square_norm(world.pos[::-1] - target)
