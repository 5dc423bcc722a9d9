"""Equations of the policy and value losses, elementwise; how they are averaged is separate."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jmarl.learning.collectives import Sum, alone
from jmarl.literals import Reduction


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
    rows: jax.Array  # of all agents together
    entries: jax.Array  # one for every agent of a row
    valued: jax.Array  # Σ of the mask of the value loss


def masked_mean(x: jax.Array, mask: jax.Array, counts: Counts) -> jax.Array:
    """Σ x·m / Σ m over everything; 0 where nothing counts."""
    return (x * mask).sum() / jnp.maximum(counts.active, 1e-8)


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
        return (entropy * mask).sum() / counts.entries
    return masked_mean(entropy, mask, counts)


class Moments(NamedTuple):
    """Of some numbers."""

    size: jax.Array  # how many
    mean: jax.Array
    squares: jax.Array  # Σ (x - mean)²

    def variance(self, ddof: int = 0) -> jax.Array:
        return self.squares / jnp.maximum(self.size - ddof, 1.0)


def moments(given: Sequence[tuple[jax.Array, jax.Array]], across: Sum = alone) -> list[Moments]:
    """Of the active entries of each (numbers, mask). Shards meet twice, however many are given."""
    firsts = across([(mask.sum(), (x * mask).sum()) for x, mask in given])
    means = [total / jnp.maximum(count, 1.0) for count, total in firsts]
    pairs = zip(given, means, strict=True)
    squares = across([((x - mean) ** 2 * mask).sum() for (x, mask), mean in pairs])
    counts = [count for count, _ in firsts]
    return [Moments(*each) for each in zip(counts, means, squares, strict=True)]


def standardised(x: jax.Array, known: Moments, eps: float, ddof: int = 0) -> jax.Array:
    """(x - mean) / (std + ε): of all entries, also those that did not count."""
    return (x - known.mean) / (jnp.sqrt(known.variance(ddof)) + eps)


class Facts(NamedTuple):
    """What must be known of a whole minibatch before a part of it is learned from."""

    counts: Counts
    advantage: Moments | None  # None where they are not normalised over it
    target_mean: jax.Array
    target_variance: jax.Array


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


def explained_variance(target: Moments, error: Moments) -> jax.Array:
    """1 - Var(target - V) / Var(target); NaN if the target does not vary."""
    variance = target.variance()
    explained = 1 - error.variance() / jnp.where(variance > 0, variance, 1.0)
    return jnp.where(variance > 0, explained, jnp.nan)
