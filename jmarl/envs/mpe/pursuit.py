"""Shared by the predator-prey scenarios: capture counts and the penalty for leaving the field."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from jmarl.envs.mpe.world import Entities, World, touching
from jmarl.kernels.short_reductions import reduce_unrolled


def captures(entities: Entities, world: World, num_adversaries: int) -> Float[Array, "prey E"]:
    """How many predators (the first agents) touch each prey (the others)."""
    prey, prey_radius = world.pos[num_adversaries:], entities.radius[num_adversaries:]
    zero = jnp.zeros((prey.shape[0], prey.shape[-1]))

    def count(caught: Array, predator: tuple[Array, Array]) -> Array:
        place, radius = predator
        return caught + touching(prey, prey_radius, place, radius)

    predators = (world.pos[:num_adversaries], entities.radius[:num_adversaries])
    return reduce_unrolled(count, zero, predators)


def out_of_bounds(pos: Float[Array, "n 2 E"]) -> Float[Array, "n E"]:
    """Per coordinate 0 up to 0.9, then 10·(|x|-0.9) up to 1, then exp(2|x|-2), at most 10."""
    x = jnp.abs(pos)
    # Cap the exponent, not the result: where exp overflows, the gradient of the cap is 0·∞.
    beyond = jnp.exp(jnp.minimum(2.0 * x - 2.0, math.log(10.0)))
    penalty = jnp.where(x < 0.9, 0.0, jnp.where(x < 1.0, 10.0 * (x - 0.9), beyond))
    return penalty[:, 0] + penalty[:, 1]
