"""In which order agents decide. An order `[…, N]` names the first, second, … agent to act;
`None` is the agents' own order."""

import jax
import jax.numpy as jnp

from jmarl.kernels.permutation import unpermute

Order = jax.Array | None


def draw(key: jax.Array, count: int, num_agents: int) -> jax.Array:
    """`[count, N]`: so many permutations."""
    return jnp.argsort(jax.random.uniform(key, (count, num_agents)), axis=-1)


def to_turns(order: Order, x: jax.Array) -> jax.Array:
    """`[…, N, …]` by agent → by turn."""
    if order is None:
        return x
    index = order.reshape(order.shape + (1,) * (x.ndim - order.ndim))
    return jnp.take_along_axis(x, index, axis=order.ndim - 1)


def to_agents(order: Order, x: jax.Array) -> jax.Array:
    """`[…, N, …]` by turn → by agent."""
    return x if order is None else to_turns(jnp.argsort(order, axis=-1), x)


def to_agents_smoothly(order: Order, x: jax.Array) -> jax.Array:
    """As `to_agents`, for floats `[…, N]` or `[…, N, K]` that gradients pass."""
    if order is None:
        return x
    columns = x[..., None] if x.ndim == order.ndim else x
    return unpermute(order, columns).reshape(x.shape)
