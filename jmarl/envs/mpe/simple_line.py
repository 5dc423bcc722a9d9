"""simple_line: N agents stand evenly on the line between two landmarks."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from jmarl.envs.mpe import targets
from jmarl.envs.mpe.options import check_count
from jmarl.envs.mpe.world import Agent, Entities, Landmark, World, at_rest
from jmarl.errors import check_bool

LENGTH = 1.25  # from landmark to landmark
TURN = np.radians(5)  # by which the line is turned until its end lies inside ±1


@dataclass(frozen=True)
class SimpleLine:
    num_agents: int = 4
    terminate_on_success: bool = False  # end when every agent is near its place

    name: ClassVar[str] = "simple_line"

    def __post_init__(self) -> None:
        check_count("num_agents", self.num_agents, low=1)
        check_bool("terminate_on_success", self.terminate_on_success)

    @property
    def entities(self) -> Entities:
        return Entities(
            agents=tuple(Agent(f"agent_{i}", radius=0.03) for i in range(self.num_agents)),
            landmarks=(Landmark(radius=0.02),) * 2,
            solid_agents=True,
        )

    def start(self, keys: Key[Array, " E"]) -> World:
        """The first landmark uniform in ±¼, the second at LENGTH from it in a random direction."""
        world = at_rest(self.entities, keys)
        begin, angle = 0.25 * world.landmarks[0], np.pi * (1 + world.landmarks[1, 0])
        return world.replace(landmarks=jnp.stack([begin, _other_end(begin, angle)]))

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Own velocity and position, relative positions of landmarks."""
        return targets.own_and_landmarks(world)

    def reward(self, world: World) -> Float[Array, "N E"]:
        """-mean(min(d, 2)) over the distances of agents to their places on the line."""
        return targets.shared_reward(self._away(world))

    def success(self, world: World) -> Bool[Array, " E"]:
        return targets.all_near(self._away(world))

    def info(self, world: World) -> dict[str, Float[Array, " E"]]:
        return targets.figure_info(self._away(world))

    def _away(self, world: World) -> Float[Array, "N E"]:
        """Places from one landmark to the other; of a single agent the first landmark."""
        begin, end = world.landmarks
        share = np.arange(self.num_agents)[:, None, None] / max(1, self.num_agents - 1)
        return targets.to_targets(world.pos, begin[None] + share * (end - begin)[None])


def _other_end(begin: Float[Array, "2 E"], angle: Float[Array, " E"]) -> Float[Array, "2 E"]:
    """At the first of angle, angle + 5°, … at which it lies inside ±1; one of a full turn does."""
    turn = TURN * np.arange(72)[:, None]
    cos, sin, x, y = np.cos(turn), np.sin(turn), jnp.cos(angle)[None], jnp.sin(angle)[None]
    turned = jnp.stack([cos * x - sin * y, sin * x + cos * y], axis=1)
    places = begin[None] + LENGTH * turned  # [72, 2, E]
    first = (jnp.abs(places).max(1) < 1).argmax(0)
    return jnp.take_along_axis(places, first[None, None], axis=0)[0]
