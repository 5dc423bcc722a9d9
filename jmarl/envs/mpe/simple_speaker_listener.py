"""simple_speaker_listener: one who knows the goal but cannot move tells one who can."""

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
    square_norm,
)

WORDS = 3
COLOURS = 3  # landmark k is bright in colour k


@dataclass(frozen=True)
class SimpleSpeakerListener:
    dialect: str = "mpe2"

    name: ClassVar[str] = "simple_speaker_listener"

    @property
    def cast(self) -> Cast:
        return Cast(
            agents=(
                Agent("speaker_0", radius=0.075, moves=False, speaks=True),
                Agent("listener_0", radius=0.075),
            ),
            landmarks=(Landmark(radius=0.04),) * COLOURS,
            message_size=WORDS,
        )

    def start(self, keys: jax.Array) -> World:
        """goal[0]: the landmark that the listener must reach."""
        return at_rest(self.cast, keys, goals=(COLOURS,))

    def observe(self, world: World) -> list[jax.Array]:
        """Speaker: the goal's colour. Listener: own velocity, where landmarks are, the word."""
        listener = world.pos[1:]
        heard = [world.vel[1:], features(relative(world.landmarks, listener)), world.message]
        return [0.15 + 0.5 * one_hot(world.goal, COLOURS), jnp.concatenate(heard, axis=1)]

    def reward(self, world: World) -> jax.Array:
        """-d² of the listener for both; on-policy pays both the sum, -2d²."""
        square = square_norm(world.pos[1] - pick(world.landmarks, world.goal[0]))
        paid = -square if self.dialect == "mpe2" else -2 * square
        return jnp.broadcast_to(paid[None], (2, *paid.shape))
