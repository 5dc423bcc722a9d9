"""simple_spread: N agents cover L landmarks without bumping into each other."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from jmarl.envs.mpe.neighbours import seen_agents, seen_landmarks
from jmarl.envs.mpe.options import check_count, check_curriculum, check_neighbours, check_only_mpe2
from jmarl.envs.mpe.world import (
    Agent,
    Entities,
    Landmark,
    World,
    at_rest,
    features,
    root,
    square_norm,
    touching,
)
from jmarl.errors import check_bool, check_float
from jmarl.kernels.short_reductions import reduce_unrolled, short_max, short_sum

MESSAGE_SIZE = 2  # agents are silent, but mpe2's observations include their (zero) messages
OCCUPIED = 0.1  # a landmark is, if an agent is nearer
STAGES = 2


@dataclass(frozen=True)
class SimpleSpread:
    num_agents: int = 3
    num_landmarks: int | None = None  # None: as many as agents
    local_ratio: float = 0.5  # weight of an agent's own collisions in its reward (mpe2)
    dialect: str = "mpe2"
    num_agent_neighbors: int | None = None  # how many other agents are seen; None: all
    num_landmark_neighbors: int | None = None
    terminate_on_success: bool = False  # end when every landmark is occupied
    curriculum: bool = False
    curriculum_stage: int = 0  # 0: collisions cost nothing; 1: they do

    name: ClassVar[str] = "simple_spread"

    def __post_init__(self) -> None:
        check_count("num_agents", self.num_agents, low=1)
        if self.num_landmarks is None:
            object.__setattr__(self, "num_landmarks", self.num_agents)
        check_count("num_landmarks", self.num_landmarks, low=1)
        check_float("local_ratio", self.local_ratio, 0.0, 1.0)
        check_neighbours(self.num_agent_neighbors, self.num_landmark_neighbors)
        check_bool("terminate_on_success", self.terminate_on_success)
        check_curriculum(self.curriculum, self.curriculum_stage, STAGES)
        new = ("num_agent_neighbors", "num_landmark_neighbors", "terminate_on_success")
        check_only_mpe2(self.dialect, {k: getattr(self, k) for k in (*new, "curriculum")})

    @property
    def entities(self) -> Entities:
        assert self.num_landmarks is not None
        return Entities(
            agents=tuple(Agent(f"agent_{i}", radius=0.15) for i in range(self.num_agents)),
            landmarks=(Landmark(),) * self.num_landmarks,
            solid_agents=True,
        )

    def start(self, keys: Key[Array, " E"]) -> World:
        landmark_range = 1.0 if self.dialect == "mpe2" else 0.8
        return at_rest(self.entities, keys, landmark_range)

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Own velocity and position, relative positions of landmarks and other agents (all, or the
        nearest), their (zero) messages."""
        agents = seen_agents(world.pos, self.num_agent_neighbors)
        n, seen, _, num_envs = agents.shape
        blocks = [
            world.vel,
            world.pos,
            features(seen_landmarks(world, self.num_landmark_neighbors)),
            features(agents),
            jnp.zeros((n, MESSAGE_SIZE * seen, num_envs)),
        ]
        return [jnp.concatenate(blocks, axis=1)]

    def reward(self, world: World) -> Float[Array, "N E"]:
        """With D = Σ_landmarks distance to the nearest agent and c_i the number of others that i
        touches: mpe2  r_i = -(1-ρ)·D - ρ·c_i;  on-policy  r = Σ_i (-D - c_i - 1) for all."""
        uncovered = short_sum(self._distances(world))[None]
        bumps = collisions(world.pos, self.entities.radius)
        if self.dialect == "onpolicy":
            # In the on-policy code an agent also collides with itself, hence the additional -1.
            shared = -self.num_agents * (uncovered + 1) - short_sum(bumps)[None]
            return jnp.broadcast_to(shared, bumps.shape)
        if self.curriculum and not self.curriculum_stage:
            bumps = jnp.zeros_like(bumps)
        return -(1 - self.local_ratio) * uncovered - self.local_ratio * bumps

    def success(self, world: World) -> Bool[Array, " E"]:
        """Every landmark is occupied."""
        return short_max(self._distances(world)) < OCCUPIED

    def info(self, world: World) -> dict[str, Float[Array, " E"]]:
        """The sum of landmarks' distances to their nearest agents, pairs of agents that touch, and
        occupied landmarks."""
        away = self._distances(world)
        return {
            "distance": short_sum(away),
            "collisions": short_sum(collisions(world.pos, self.entities.radius)) / 2,
            "occupied_landmarks": short_sum((away < OCCUPIED).astype(away.dtype)),
        }

    def _distances(self, world: World) -> Float[Array, "L E"]:
        """From each landmark to the nearest agent."""
        return root(nearest_square(world.landmarks, world.pos))


def nearest_square(
    places: Float[Array, "K 2 E"], agents: Float[Array, "N 2 E"]
) -> Float[Array, "K E"]:
    """The squared distance from each of `places` to the nearest agent."""
    far = jnp.full((places.shape[0], places.shape[-1]), jnp.inf)
    return reduce_unrolled(
        lambda best, pos: jnp.minimum(best, square_norm(places - pos[None])), far, agents
    )


def collisions(pos: Float[Array, "N 2 E"], radius: Float[np.ndarray, " N"]) -> Float[Array, "N E"]:
    """How many other agents each agent touches."""
    zero = jnp.zeros((pos.shape[0], pos.shape[-1]))

    def count(bumps: Array, other: tuple[Array, Array]) -> Array:
        place, other_radius = other
        return bumps + touching(pos, radius, place, other_radius)

    return reduce_unrolled(count, zero, (pos, radius)) - 1  # each agent touches itself
