"""Advantages and returns, computed backwards in time.

`next_value[t]` is the value of the state that step t led to, before any reset. The references treat
a time limit (`truncated`) in three ways:

- `bootstrap`: the return goes on with the next state's value (XuanCe; the default)
- `terminal`: as a true end (on-policy on MPE)
- `zero_gae`: as `terminal`, and the advantage of the truncated step is 0 (MAT on MPE)
"""

import chex
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jmarl.literals import TimeLimit
from jmarl.types import Scalar


def gae(
    reward: Float[Array, "T E N"],
    value: Float[Array, "T E N"],
    next_value: Float[Array, "T E N"],
    terminated: Bool[Array, "T E N"],
    truncated: Bool[Array, "T E"],
    gamma: Scalar,
    gae_lambda: Scalar,
    time_limit: TimeLimit = "bootstrap",
) -> tuple[Float[Array, "T E N"], Float[Array, "T E N"]]:
    """Advantage A and return A + V. Schulman et al. 2016.

    δ_t = r_t + γ·(1-terminated_t)·V(s'_t) - V_t
    A_t = δ_t + γλ·(1-terminated_t)·(1-truncated_t)·A_{t+1}
    """
    chex.assert_equal_shape([reward, value, next_value, terminated])
    ended = terminated | truncated[..., None]
    no_future = terminated if time_limit == "bootstrap" else ended
    delta = reward + gamma * jnp.where(no_future, 0.0, next_value) - value
    keep = gamma * gae_lambda * (1.0 - ended)
    # MAT on MPE sets the advantage of the truncated step to zero, whatever follows
    counts = 1.0 - truncated[..., None] if time_limit == "zero_gae" else jnp.ones_like(keep)

    def step(
        later: jax.Array, now: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        delta_t, keep_t, counts_t = now
        advantage = counts_t * (delta_t + keep_t * later)
        return advantage, advantage

    _, advantage = lax.scan(step, jnp.zeros_like(delta[0]), (delta, keep, counts), reverse=True)
    return advantage, advantage + value


def monte_carlo(
    reward: Float[Array, "T E N"],
    value: Float[Array, "T E N"],
    next_value: Float[Array, "T E N"],
    terminated: Bool[Array, "T E N"],
    truncated: Bool[Array, "T E"],
    gamma: Scalar,
    time_limit: TimeLimit = "bootstrap",
) -> Float[Array, "T E N"]:
    """R_t = r_t + γ·(1-terminated_t)·(V(s'_t) where cut or at the rollout's end, else R_{t+1}).

    A time limit means what it means for `gae`: under `terminal` nothing follows, and under
    `zero_gae` R_t is V_t, so that the advantage is 0."""

    def step(later: jax.Array, now: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        reward_t, value_t, next_value_t, terminated_t, truncated_t = now
        cut = truncated_t[:, None]
        future = jnp.where(cut, next_value_t if time_limit == "bootstrap" else 0.0, later)
        total = reward_t + gamma * jnp.where(terminated_t, 0.0, future)
        if time_limit == "zero_gae":
            total = jnp.where(cut, value_t, total)
        return total, total

    chex.assert_equal_shape([reward, value, next_value, terminated])
    steps = (reward, value, next_value, terminated, truncated)
    return lax.scan(step, next_value[-1], steps, reverse=True)[1]
