"""simple_adversary: the good know the goal and cover it; an adversary must guess which it is."""

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
    distance,
    features,
    others,
    pick,
    relative,
)
from jmarl.errors import check_int
from jmarl.kernels.short_reductions import least

ADVERSARIES = 1


@dataclass(frozen=True)
class SimpleAdversary:
    num_good: int = 2
    num_landmarks: int | None = None  # None: as many as good agents

    name: ClassVar[str] = "simple_adversary"

    def __post_init__(self) -> None:
        check_int("num_good", self.num_good, low=1)
        if self.num_landmarks is None:
            object.__setattr__(self, "num_landmarks", self.num_good)
        check_int("num_landmarks", self.num_landmarks, low=1)

    @property
    def cast(self) -> Cast:
        assert self.num_landmarks is not None
        adversary = Agent("adversary_0", team="adversary", radius=0.15)
        good = (Agent(f"agent_{i}", team="good", radius=0.15) for i in range(self.num_good))
        return Cast(
            agents=(adversary, *good), landmarks=(Landmark(radius=0.08),) * self.num_landmarks
        )

    def start(self, keys: jax.Array) -> World:
        """goal[0]: the landmark that counts."""
        assert self.num_landmarks is not None
        return at_rest(self.cast, keys, goals=(self.num_landmarks,))

    def observe(self, world: World) -> list[jax.Array]:
        """Where landmarks and others are; the good also see, first, where the goal is."""
        around = jnp.concatenate(
            [
                features(relative(world.landmarks, world.pos)),
                features(others(relative(world.pos, world.pos))),
            ],
            axis=1,
        )
        to_goal = pick(world.landmarks, world.goal[0])[None] - world.pos[ADVERSARIES:]
        good = jnp.concatenate([to_goal, around[ADVERSARIES:]], axis=1)
        return [around[:ADVERSARIES], good]

    def reward(self, world: World) -> jax.Array:
        """With d the distance to the goal: adversary -d; good Σ_adversary d - min_good d."""
        d = distance(world.pos, pick(world.landmarks, world.goal[0])[None])
        good = d[:ADVERSARIES] - least(d[ADVERSARIES:])[None]
        shared = jnp.broadcast_to(good, (self.num_good, d.shape[-1]))
        return jnp.concatenate([-d[:ADVERSARIES], shared])
