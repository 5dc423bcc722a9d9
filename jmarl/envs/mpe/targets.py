"""Shared by the scenarios in which agents form a figure: one target each, and how far it is."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jmarl.envs.mpe.world import World, distance, features, relative
from jmarl.kernels.assignment import assigned_costs
from jmarl.kernels.short_reductions import short_max, short_sum

FARTHEST = 2.0  # what lies beyond costs no more
NEAR = 0.05  # within it a target is reached


def to_targets(pos: Float[Array, "N 2 E"], targets: Float[Array, "N 2 E"]) -> Float[Array, "N E"]:
    """The distance of each agent to its target; together they are as near as can be."""
    return assigned_costs(distance(pos[:, None], targets[None]))


def shared_reward(away: Float[Array, "N E"]) -> Float[Array, "N E"]:
    """-mean(min(d, 2)) for all."""
    mean = short_sum(jnp.minimum(away, FARTHEST)) / len(away)
    return jnp.broadcast_to(-mean[None], away.shape)


def all_near(away: Float[Array, "N E"]) -> Bool[Array, " E"]:
    return short_max(away) < NEAR


def figure_info(away: Float[Array, "N E"]) -> dict[str, Float[Array, " E"]]:
    """The mean distance from targets, and whether all are reached."""
    return {
        "distance": short_sum(away) / len(away),
        "success": all_near(away).astype(away.dtype),
    }


def own_and_landmarks(world: World) -> list[Float[Array, "_ _ E"]]:
    """Own velocity and position, relative positions of landmarks."""
    blocks = [world.vel, world.pos, features(relative(world.landmarks, world.pos))]
    return [jnp.concatenate(blocks, axis=1)]
