"""simple_spread: N agents cover L landmarks without bumping into each other."""

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
    features,
    others,
    relative,
    root,
    square_norm,
    touching,
)
from jmarl.errors import check_float, check_int
from jmarl.kernels.short_reductions import fold, total

MESSAGE_SIZE = 2  # agents are silent, yet mpe2 shows each other's (zero) messages


@dataclass(frozen=True)
class SimpleSpread:
    num_agents: int = 3
    num_landmarks: int | None = None  # None: as many as agents
    local_ratio: float = 0.5  # of each agent's own collisions in its reward (mpe2)
    dialect: str = "mpe2"

    name: ClassVar[str] = "simple_spread"

    def __post_init__(self) -> None:
        check_int("num_agents", self.num_agents, low=1)
        if self.num_landmarks is None:
            object.__setattr__(self, "num_landmarks", self.num_agents)
        check_int("num_landmarks", self.num_landmarks, low=1)
        check_float("local_ratio", self.local_ratio, 0.0, 1.0)

    @property
    def cast(self) -> Cast:
        assert self.num_landmarks is not None
        return Cast(
            agents=tuple(Agent(f"agent_{i}", radius=0.15) for i in range(self.num_agents)),
            landmarks=(Landmark(),) * self.num_landmarks,
            solid_agents=True,
        )

    def start(self, keys: jax.Array) -> World:
        landmark_range = 1.0 if self.dialect == "mpe2" else 0.8
        return at_rest(self.cast, keys, landmark_range)

    def observe(self, world: World) -> list[jax.Array]:
        """Own velocity and place, where landmarks and others are, what the others say: nothing."""
        n, num_envs = self.num_agents, world.pos.shape[-1]
        seen = [
            world.vel,
            world.pos,
            features(relative(world.landmarks, world.pos)),
            features(others(relative(world.pos, world.pos))),
            jnp.zeros((n, MESSAGE_SIZE * (n - 1), num_envs)),
        ]
        return [jnp.concatenate(seen, axis=1)]

    def reward(self, world: World) -> jax.Array:
        """With D = Σ_landmarks distance to the nearest agent and c_i the others that i touches:
        mpe2  r_i = -(1-ρ)·D - ρ·c_i;  on-policy  r = Σ_i (-D - c_i - 1), the same for all."""
        uncovered = total(root(nearest_square(world.landmarks, world.pos)))[None]
        bumps = collisions(world.pos, self.cast.radius)
        if self.dialect == "onpolicy":
            # an agent always "touches" itself there, hence the further -1
            shared = -self.num_agents * (uncovered + 1) - total(bumps)[None]
            return jnp.broadcast_to(shared, bumps.shape)
        return -(1 - self.local_ratio) * uncovered - self.local_ratio * bumps


def nearest_square(places: jax.Array, agents: jax.Array) -> jax.Array:
    """[K, E]: the squared distance from each of `places` to the agent nearest to it."""
    far = jnp.full((places.shape[0], places.shape[-1]), jnp.inf)
    return fold(lambda best, pos: jnp.minimum(best, square_norm(places - pos[None])), far, agents)


def collisions(pos: jax.Array, radius: np.ndarray) -> jax.Array:
    """[N, E]: how many others each agent touches."""
    zero = jnp.zeros((pos.shape[0], pos.shape[-1]))

    def count(bumps: jax.Array, other: tuple[jax.Array, jax.Array]) -> jax.Array:
        place, other_radius = other
        return bumps + touching(pos, radius, place, other_radius)

    return fold(count, zero, (pos, radius)) - 1  # each touches itself
