"""What the two hunting scenarios share: who is caught, and the price of leaving the field."""

import math

import jax
import jax.numpy as jnp

from jmarl.envs.mpe.world import Cast, World, touching
from jmarl.kernels.short_reductions import fold


def captures(cast: Cast, world: World, num_adversaries: int) -> jax.Array:
    """[prey, E]: how many predators (the first agents) touch each prey (the rest)."""
    prey, prey_radius = world.pos[num_adversaries:], cast.radius[num_adversaries:]
    zero = jnp.zeros((prey.shape[0], prey.shape[-1]))

    def count(caught: jax.Array, predator: tuple[jax.Array, jax.Array]) -> jax.Array:
        place, radius = predator
        return caught + touching(prey, prey_radius, place, radius)

    predators = (world.pos[:num_adversaries], cast.radius[:num_adversaries])
    return fold(count, zero, predators)


def out_of_bounds(pos: jax.Array) -> jax.Array:
    """[n, 2, E] → [n, E]: per coordinate 0 up to 0.9, then 10·(|x|-0.9) up to 1, then
    exp(2|x|-2), at most 10."""
    x = jnp.abs(pos)
    # capped before exp: past the cap an overflow would make the gradient 0·∞
    beyond = jnp.exp(jnp.minimum(2.0 * x - 2.0, math.log(10.0)))
    price = jnp.where(x < 0.9, 0.0, jnp.where(x < 1.0, 10.0 * (x - 0.9), beyond))
    return price[:, 0] + price[:, 1]
