"""Advantages and returns: what an action was worth, counted back from the end.

`next_value[t]` is the value of what step t led to, before any reset. Three readings of a time
limit (`truncated`) are found in the sources:

- `bootstrap`: the future goes on unseen: its value counts, its rewards do not (XuanCe; default)
- `terminal`: the world ends there (on-policy on MPE)
- `zero_gae`: as `terminal`, and the cut step itself teaches nothing (MAT on MPE)
"""

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.literals import TimeLimit


def gae(
    reward: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    gamma: jax.Array | float,
    gae_lambda: jax.Array | float,
    time_limit: TimeLimit = "bootstrap",
) -> tuple[jax.Array, jax.Array]:
    """Advantage A and return A + V, all `[T, E, N]`, as is `terminated`; `truncated` is `[T, E]`.
    Schulman et al. 2016.

    δ_t = r_t + γ·(1-terminated_t)·V(s'_t) - V_t
    A_t = δ_t + γλ·(1-terminated_t)·(1-truncated_t)·A_{t+1}
    """
    ended = terminated | truncated[..., None]
    no_future = terminated if time_limit == "bootstrap" else ended
    delta = reward + gamma * jnp.where(no_future, 0.0, next_value) - value
    keep = gamma * gae_lambda * (1.0 - ended)
    # MAT on MPE sets the advantage of the cut step to zero, whatever follows
    counts = 1.0 - truncated[..., None] if time_limit == "zero_gae" else jnp.ones_like(keep)

    def step(later: jax.Array, now: tuple[jax.Array, jax.Array, jax.Array]) -> tuple:
        delta_t, keep_t, counts_t = now
        advantage = counts_t * (delta_t + keep_t * later)
        return advantage, advantage

    _, advantage = lax.scan(step, jnp.zeros_like(delta[0]), (delta, keep, counts), reverse=True)
    return advantage, advantage + value


def monte_carlo(
    reward: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    gamma: jax.Array | float,
    time_limit: TimeLimit = "bootstrap",
) -> jax.Array:
    """R_t = r_t + γ·(1-terminated_t)·(V(s'_t) where cut or at the rollout's end, else R_{t+1}).

    A cut means here what it means for `gae`: under `terminal` nothing follows it, under `zero_gae`
    its R_t is also V_t, so that the advantage is 0."""

    def step(later: jax.Array, now: tuple[jax.Array, ...]) -> tuple:
        reward_t, value_t, next_value_t, terminated_t, truncated_t = now
        cut = truncated_t[:, None]
        future = jnp.where(cut, next_value_t if time_limit == "bootstrap" else 0.0, later)
        total = reward_t + gamma * jnp.where(terminated_t, 0.0, future)
        if time_limit == "zero_gae":
            total = jnp.where(cut, value_t, total)
        return total, total

    steps = (reward, value, next_value, terminated, truncated)
    return lax.scan(step, next_value[-1], steps, reverse=True)[1]
