"""simple_push: a good agent wants to be at its goal; an adversary pushes it away."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jmarl.envs.mpe.world import (
    Agent,
    Entities,
    Landmark,
    World,
    at_rest,
    distance,
    features,
    one_hot,
    others,
    relative,
    select,
)

LANDMARKS = 2
LANDMARK_COLOURS = np.array([[0.1, 0.9, 0.1], [0.1, 0.1, 0.9]])


@dataclass(frozen=True)
class SimplePush:
    name: ClassVar[str] = "simple_push"

    @property
    def entities(self) -> Entities:
        return Entities(
            agents=(Agent("adversary_0", team="adversary"), Agent("agent_0", team="good")),
            landmarks=(Landmark(),) * LANDMARKS,
            solid_agents=True,
        )

    def start(self, keys: Key[Array, " E"]) -> World:
        """goal[0]: the good agent's landmark."""
        return at_rest(self.entities, keys, goals=(LANDMARKS,))

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Both: own velocity, relative positions of landmarks and the other agent. The good agent
        also: relative position of its goal, its own colour (the goal's, muted) and the colours of
        the landmarks."""
        to_landmarks = features(relative(world.landmarks, world.pos))
        to_other = features(others(relative(world.pos, world.pos)))
        adversary = [world.vel[:1], to_landmarks[:1], to_other[:1]]
        colours = LANDMARK_COLOURS.reshape(1, -1, 1)
        good = [
            world.vel[1:],
            select(world.landmarks, world.goal[0])[None] - world.pos[1:],
            0.25 + 0.5 * one_hot(world.goal + 1, 3),
            to_landmarks[1:],
            jnp.broadcast_to(colours, (1, colours.size, world.pos.shape[-1])),
            to_other[1:],
        ]
        return [jnp.concatenate(adversary, axis=1), jnp.concatenate(good, axis=1)]

    def reward(self, world: World) -> Float[Array, "N E"]:
        """With d the distance to the goal: good -d; adversary d_good - d_adversary."""
        d = self._to_goal(world)
        return jnp.stack([d[1] - d[0], -d[1]])

    def info(self, world: World) -> dict[str, Float[Array, " E"]]:
        """Distances to the goal."""
        adversary, good = self._to_goal(world)
        return {"adversary_distance": adversary, "good_distance": good}

    def _to_goal(self, world: World) -> Float[Array, "N E"]:
        return distance(world.pos, select(world.landmarks, world.goal[0])[None])
