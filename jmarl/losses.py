"""Equations of the policy and value losses, elementwise; how they are averaged is separate."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jmarl.choices import Reduction


def clipped_surrogate(
    ratio: jax.Array, advantage: jax.Array, clip_eps: jax.Array | float
) -> jax.Array:
    """-min(r·A, clip(r, 1-ε, 1+ε)·A). Schulman et al. 2017, eq. 7."""
    clipped = jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps)
    return -jnp.minimum(ratio * advantage, clipped * advantage)


def huber(error: jax.Array, delta: jax.Array | float) -> jax.Array:
    """e²/2 up to |e| = δ, then δ·(|e| - δ/2): on both sides (spec D3)."""
    size = jnp.abs(error)
    return jnp.where(size <= delta, 0.5 * error**2, delta * (size - 0.5 * delta))


def squared(error: jax.Array, factor: float) -> jax.Array:
    """factor·e²: ½ in MAT, on-policy and the PPO seed, 1 in XuanCe."""
    return factor * error**2


def clipped_value_loss(loss: jax.Array, clipped_loss: jax.Array) -> jax.Array:
    """max(ℓ(target - V), ℓ(target - V_clip)): the pessimistic one of the two."""
    return jnp.maximum(loss, clipped_loss)


def clip_value(value: jax.Array, old_value: jax.Array, clip_eps: jax.Array | float) -> jax.Array:
    """V_old + clip(V - V_old, ±ε)."""
    return old_value + jnp.clip(value - old_value, -clip_eps, clip_eps)


class Counts(NamedTuple):
    """What means over a batch are divided by. A part of a batch is given the whole's, so that the
    means over its parts add up to the mean over all."""

    active: jax.Array  # Σ m
    rows: float

    @classmethod
    def of(cls, mask: jax.Array) -> "Counts":
        """`[…, N]`"""
        return cls(jnp.maximum(mask.sum(), 1e-8), math.prod(mask.shape[:-1]))


def masked_mean(x: jax.Array, mask: jax.Array, counts: Counts) -> jax.Array:
    """Σ x·m / Σ m over everything; 0 where nothing counts."""
    return (x * mask).sum() / counts.active


def reduce_agents(x: jax.Array, mask: jax.Array, counts: Counts, reduction: Reduction) -> jax.Array:
    """`[…, N]` → scalar. `mean`: Σ x·m / Σ m.  `sum`: mean over rows of Σ_agents x·m (XuanCe)."""
    if reduction == "sum":
        return (x * mask).sum() / counts.rows
    return masked_mean(x, mask, counts)


def entropy_bonus(
    entropy: jax.Array, mask: jax.Array, counts: Counts, reduction: Reduction
) -> jax.Array:
    """`[…, N]` → scalar: the mean over active agents. XuanCe, which sums its surrogate over
    agents, takes the mean over all, the inactive with 0."""
    if reduction == "sum":
        return (entropy * mask).sum() / (counts.rows * mask.shape[-1])
    return masked_mean(entropy, mask, counts)


def normalise_advantage(
    advantage: jax.Array, mask: jax.Array, eps: float, ddof: int = 0
) -> jax.Array:
    """(A - mean) / (std + ε) with statistics over active entries only; all entries are shifted."""
    count = jnp.maximum(mask.sum(), 1.0)
    mean = (advantage * mask).sum() / count
    variance = ((advantage - mean) ** 2 * mask).sum() / jnp.maximum(count - ddof, 1.0)
    return (advantage - mean) / (jnp.sqrt(variance) + eps)


# -- diagnostics -----------------------------------------------------------------------------------


def approx_kl(log_ratio: jax.Array) -> jax.Array:
    """(r - 1) - log r, elementwise: unbiased and never negative. Schulman 2020, estimator k3."""
    return jnp.expm1(log_ratio) - log_ratio


def old_approx_kl(log_ratio: jax.Array) -> jax.Array:
    """-log r, elementwise: unbiased, of high variance. Schulman 2020, estimator k1."""
    return -log_ratio


def clip_fraction(ratio: jax.Array, clip_eps: jax.Array | float) -> jax.Array:
    """1 where |r - 1| > ε, elementwise."""
    return (jnp.abs(ratio - 1) > clip_eps).astype(ratio.dtype)


def explained_variance(value: jax.Array, target: jax.Array) -> jax.Array:
    """1 - Var(target - V) / Var(target); NaN if the target does not vary."""
    variance = target.var()
    explained = 1 - (target - value).var() / jnp.where(variance > 0, variance, 1.0)
    return jnp.where(variance > 0, explained, jnp.nan)
