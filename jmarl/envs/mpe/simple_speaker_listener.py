"""simple_speaker_listener: a speaker knows the goal but cannot move; a listener moves there."""

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

WORDS = 3
COLOURS = 3  # landmark k is bright in colour k


@dataclass(frozen=True)
class SimpleSpeakerListener:
    dialect: str = "mpe2"

    name: ClassVar[str] = "simple_speaker_listener"

    @property
    def entities(self) -> Entities:
        return Entities(
            agents=(
                Agent("speaker_0", radius=0.075, moves=False, speaks=True),
                Agent("listener_0", radius=0.075),
            ),
            landmarks=(Landmark(radius=0.04),) * COLOURS,
            message_size=WORDS,
        )

    def start(self, keys: Key[Array, " E"]) -> World:
        """goal[0]: the landmark that the listener must reach."""
        return at_rest(self.entities, keys, goals=(COLOURS,))

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Speaker: the goal's colour. Listener: own velocity, relative positions of landmarks, the
        message."""
        to_landmarks = features(relative(world.landmarks, world.pos[1:]))
        listener = [world.vel[1:], to_landmarks, world.message]
        return [0.15 + 0.5 * one_hot(world.goal, COLOURS), jnp.concatenate(listener, axis=1)]

    def reward(self, world: World) -> Float[Array, "N E"]:
        """-d² of the listener for both; in the on-policy dialect both get the sum, -2d²."""
        square = self._square(world)
        reward = -square if self.dialect == "mpe2" else -2 * square
        return jnp.broadcast_to(reward[None], (2, *reward.shape))

    def info(self, world: World) -> dict[str, Float[Array, " E"]]:
        """The listener's distance from the goal."""
        return {"distance": root(self._square(world))}

    def _square(self, world: World) -> Float[Array, " E"]:
        return square_norm(world.pos[1] - select(world.landmarks, world.goal[0]))
