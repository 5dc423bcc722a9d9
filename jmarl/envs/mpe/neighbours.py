"""Views of the nearest: entities sorted by distance, in a fixed number of slots."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jmarl.envs.mpe.world import World, others, relative, square_norm
from jmarl.kernels.short_sort import smallest_rows


def nearest(
    pos: Float[Array, "N 2 E"],
    rows: Float[Array, "K F E"],
    count: int,
    unseen: Bool[Array, "#N K #E"] | None = None,
) -> Float[Array, "N count F E"]:
    """The `count` nearest of K entities, nearest first; zeros where there are fewer. A row begins
    with the entity's position, for which the relative position is given."""
    square = square_norm(rows[None, :, :2] - pos[:, None])
    if unseen is not None:
        square = jnp.where(unseen, jnp.inf, square)
    found = smallest_rows(square, rows, min(count, len(rows)))
    own = jnp.pad(pos, ((0, 0), (0, rows.shape[1] - 2), (0, 0)))[:, None]
    return jnp.pad(found - own, ((0, 0), (0, count - found.shape[1]), (0, 0), (0, 0)))


def nearest_others(
    pos: Float[Array, "N 2 E"], rows: Float[Array, "N F E"], count: int
) -> Float[Array, "N count F E"]:
    """`nearest` of the other agents."""
    n = len(pos)
    found = nearest(pos, rows, min(count, n - 1), jnp.eye(n, dtype=bool)[:, :, None])
    return jnp.pad(found, ((0, 0), (0, count - found.shape[1]), (0, 0), (0, 0)))


def seen_agents(pos: Float[Array, "N 2 E"], count: int | None) -> Float[Array, "N slots 2 E"]:
    """Relative positions of the nearest other agents. None: of all, in their own order."""
    return others(relative(pos, pos)) if count is None else nearest_others(pos, pos, count)


def seen_landmarks(world: World, count: int | None) -> Float[Array, "N slots 2 E"]:
    """Likewise of landmarks."""
    if count is None:
        return relative(world.landmarks, world.pos)
    return nearest(world.pos, world.landmarks, count)
