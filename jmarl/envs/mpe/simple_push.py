"""simple_push: a good agent wants to be at its goal; an adversary pushes it away."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.envs.mpe.world import (
    Agent,
    Cast,
    Landmark,
    World,
    at_rest,
    distance,
    features,
    one_hot,
    others,
    pick,
    relative,
)

LANDMARKS = 2
LANDMARK_COLOURS = np.array([[0.1, 0.9, 0.1], [0.1, 0.1, 0.9]])


@dataclass(frozen=True)
class SimplePush:
    name: ClassVar[str] = "simple_push"

    @property
    def cast(self) -> Cast:
        return Cast(
            agents=(Agent("adversary_0", team="adversary"), Agent("agent_0", team="good")),
            landmarks=(Landmark(),) * LANDMARKS,
            solid_agents=True,
        )

    def start(self, keys: jax.Array) -> World:
        """goal[0]: the good agent's landmark."""
        return at_rest(self.cast, keys, goals=(LANDMARKS,))

    def observe(self, world: World) -> list[jax.Array]:
        """Both: own velocity, where landmarks and the other are. The good one also: where its goal
        is, its own colour (that of the goal, muted) and the landmarks' colours."""
        to_landmarks = features(relative(world.landmarks, world.pos))
        to_other = features(others(relative(world.pos, world.pos)))
        adversary = [world.vel[:1], to_landmarks[:1], to_other[:1]]
        colours = LANDMARK_COLOURS.reshape(1, -1, 1)
        good = [
            world.vel[1:],
            pick(world.landmarks, world.goal[0])[None] - world.pos[1:],
            0.25 + 0.5 * one_hot(world.goal + 1, 3),
            to_landmarks[1:],
            jnp.broadcast_to(colours, (1, colours.size, world.pos.shape[-1])),
            to_other[1:],
        ]
        return [jnp.concatenate(adversary, axis=1), jnp.concatenate(good, axis=1)]

    def reward(self, world: World) -> jax.Array:
        """With d the distance to the goal: good -d; adversary d_good - d_adversary."""
        d = distance(world.pos, pick(world.landmarks, world.goal[0])[None])
        return jnp.stack([d[1] - d[0], -d[1]])
