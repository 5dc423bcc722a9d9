"""simple_adversary: good agents know the goal and cover it; an adversary must guess which it is."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jmarl.envs.mpe.neighbours import seen_agents, seen_landmarks
from jmarl.envs.mpe.options import check_count, check_neighbours
from jmarl.envs.mpe.world import (
    Agent,
    Entities,
    Landmark,
    World,
    at_rest,
    distance,
    features,
    select,
)
from jmarl.kernels.short_reductions import short_min

ADVERSARIES = 1
LANDMARK_RADIUS = 0.08
AT_GOAL = 2 * LANDMARK_RADIUS  # whoever is nearer


@dataclass(frozen=True)
class SimpleAdversary:
    num_good: int = 2
    num_landmarks: int | None = None  # None: as many as good agents
    num_agent_neighbors: int | None = None  # how many other agents are seen; None: all
    num_landmark_neighbors: int | None = None

    name: ClassVar[str] = "simple_adversary"

    def __post_init__(self) -> None:
        check_count("num_good", self.num_good, low=1)
        if self.num_landmarks is None:
            object.__setattr__(self, "num_landmarks", self.num_good)
        check_count("num_landmarks", self.num_landmarks, low=1)
        check_neighbours(self.num_agent_neighbors, self.num_landmark_neighbors)

    @property
    def entities(self) -> Entities:
        assert self.num_landmarks is not None
        adversary = Agent("adversary_0", team="adversary", radius=0.15)
        good = (Agent(f"agent_{i}", team="good", radius=0.15) for i in range(self.num_good))
        return Entities(
            agents=(adversary, *good),
            landmarks=(Landmark(radius=LANDMARK_RADIUS),) * self.num_landmarks,
        )

    def start(self, keys: Key[Array, " E"]) -> World:
        """goal[0]: the index of the goal landmark."""
        assert self.num_landmarks is not None
        return at_rest(self.entities, keys, goals=(self.num_landmarks,))

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Relative positions of landmarks and other agents (all, or the nearest); for good agents,
        before these, that of the goal."""
        landmarks = seen_landmarks(world, self.num_landmark_neighbors)
        agents = seen_agents(world.pos, self.num_agent_neighbors)
        around = jnp.concatenate([features(landmarks), features(agents)], axis=1)
        to_goal = select(world.landmarks, world.goal[0])[None] - world.pos[ADVERSARIES:]
        good = jnp.concatenate([to_goal, around[ADVERSARIES:]], axis=1)
        return [around[:ADVERSARIES], good]

    def reward(self, world: World) -> Float[Array, "N E"]:
        """With d the distance to the goal: adversary -d; good agents Σ_adversary d - min_good d."""
        d = self._to_goal(world)
        good = d[:ADVERSARIES] - short_min(d[ADVERSARIES:])[None]
        shared = jnp.broadcast_to(good, (self.num_good, d.shape[-1]))
        return jnp.concatenate([-d[:ADVERSARIES], shared])

    def info(self, world: World) -> dict[str, Float[Array, " E"]]:
        """Distances to the goal, of the adversary and of the nearest good agent, and who is at
        it."""
        d = self._to_goal(world)
        away = {"adversary": d[0], "good": short_min(d[ADVERSARIES:])}
        at_goal = {f"{k}_at_goal": (x < AT_GOAL).astype(d.dtype) for k, x in away.items()}
        return {f"{k}_distance": x for k, x in away.items()} | at_goal

    def _to_goal(self, world: World) -> Float[Array, "N E"]:
        return distance(world.pos, select(world.landmarks, world.goal[0])[None])
