"""simple_formation: N agents stand evenly on a circle around a landmark."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from jmarl.envs.mpe import targets
from jmarl.envs.mpe.options import check_count
from jmarl.envs.mpe.world import (
    Agent,
    Entities,
    Landmark,
    World,
    at_rest,
    distance_and_safe,
    square_norm,
)
from jmarl.errors import check_bool
from jmarl.kernels.short_reductions import reduce_unrolled

RADIUS = 0.5  # of the circle


@dataclass(frozen=True)
class SimpleFormation:
    num_agents: int = 4
    terminate_on_success: bool = False  # end when every agent is near its place

    name: ClassVar[str] = "simple_formation"

    def __post_init__(self) -> None:
        check_count("num_agents", self.num_agents, low=1)
        check_bool("terminate_on_success", self.terminate_on_success)

    @property
    def entities(self) -> Entities:
        return Entities(
            agents=tuple(Agent(f"agent_{i}") for i in range(self.num_agents)),
            landmarks=(Landmark(radius=0.03),),
            solid_agents=True,
        )

    def start(self, keys: Key[Array, " E"]) -> World:
        return at_rest(self.entities, keys, landmark_range=0.5)

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Own velocity and position, relative position of the landmark."""
        return targets.own_and_landmarks(world)

    def reward(self, world: World) -> Float[Array, "N E"]:
        """-mean(min(d, 2)) over the distances of agents to their places on the circle."""
        return targets.shared_reward(self._away(world))

    def success(self, world: World) -> Bool[Array, " E"]:
        return targets.all_near(self._away(world))

    def info(self, world: World) -> dict[str, Float[Array, " E"]]:
        return targets.figure_info(self._away(world))

    def _away(self, world: World) -> Float[Array, "N E"]:
        return targets.to_targets(world.pos, circle(world.pos, world.landmarks[0]))


def circle(pos: Float[Array, "N 2 E"], centre: Float[Array, "2 E"]) -> Float[Array, "N 2 E"]:
    """Places on the circle, evenly apart, the first in the direction of the agent that has the
    smallest angle in [0, 2π)."""
    x, y = _first_direction(pos - centre[None])
    angle = 2 * np.pi * np.arange(len(pos))[:, None] / len(pos)
    cos, sin = np.cos(angle), np.sin(angle)
    turned = jnp.stack([cos * x[None] - sin * y[None], sin * x[None] + cos * y[None]], axis=1)
    return centre[None] + RADIUS * turned


def _first_direction(away: Float[Array, "N 2 E"]) -> Float[Array, "2 E"]:
    """The unit vector with the smallest angle; that of a zero is (1, 0), as atan2(0, 0) = 0.

    Instead of angles it compares y / (|x| + |y|) and its like, which grow with them."""
    length, safe = distance_and_safe(square_norm(away))
    zero = length == 0
    x = jnp.where(zero, 1.0, away[:, 0] / safe)
    y = jnp.where(zero, 0.0, away[:, 1] / safe)
    along = x / (jnp.abs(x) + jnp.abs(y))
    grows = jnp.where(y < 0, 3.0 + along, 1.0 - along)  # 0 … 4 for 0 … 2π

    def first(best: Any, other: Any) -> Any:
        smaller = other[0] < best[0]
        return tuple(jnp.where(smaller, b, a) for a, b in zip(best, other, strict=True))

    far = (jnp.full_like(x[0], jnp.inf), jnp.ones_like(x[0]), jnp.zeros_like(x[0]))
    return jnp.stack(reduce_unrolled(first, far, (grows, x, y))[1:])
