"""Equations of the policy and value losses, elementwise; averaging is separate."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jmarl.learning.collectives import Sum, local_sum
from jmarl.literals import Reduction
from jmarl.types import Scalar


def clipped_surrogate(
    ratio: Float[Array, "*axes"], advantage: Float[Array, "*#axes"], clip_eps: Scalar
) -> Float[Array, "*axes"]:
    """-min(r·A, clip(r, 1-ε, 1+ε)·A). Schulman et al. 2017, eq. 7."""
    clipped = jnp.clip(ratio, 1 - clip_eps, 1 + clip_eps)
    return -jnp.minimum(ratio * advantage, clipped * advantage)


def huber(error: Float[Array, "*axes"], delta: Scalar) -> Float[Array, "*axes"]:
    """e²/2 up to |e| = δ, then δ·(|e| - δ/2): on both sides (spec D3)."""
    size = jnp.abs(error)
    return jnp.where(size <= delta, 0.5 * error**2, delta * (size - 0.5 * delta))


def squared(error: Float[Array, "*axes"], factor: float) -> Float[Array, "*axes"]:
    """factor·e²: ½ in MAT, on-policy and the PPO seed, 1 in XuanCe."""
    return factor * error**2


def clipped_value_loss(
    loss: Float[Array, "*axes"], clipped_loss: Float[Array, "*axes"]
) -> Float[Array, "*axes"]:
    """max(ℓ(target - V), ℓ(target - V_clip)): the pessimistic one of the two."""
    return jnp.maximum(loss, clipped_loss)


def clip_value(
    value: Float[Array, "*axes"], old_value: Float[Array, "*axes"], clip_eps: Scalar
) -> Float[Array, "*axes"]:
    """V_old + clip(V - V_old, ±ε)."""
    return old_value + jnp.clip(value - old_value, -clip_eps, clip_eps)


class Counts(NamedTuple):
    """Denominators of means over a batch. A microbatch gets those of its whole minibatch, so that
    the microbatches' means add up to the minibatch's."""

    active: jax.Array  # Σ m
    rows: jax.Array  # (time, world) pairs
    entries: jax.Array  # one per agent of a row
    valued: jax.Array  # Σ of the mask of the value loss


class Masked(Protocol):
    """A trajectory or a batch."""

    @property
    def active(self) -> jax.Array: ...

    @property
    def valued(self) -> jax.Array | None: ...


def value_mask(rows: Masked) -> jax.Array:
    """1 where values are learned."""
    return rows.active if rows.valued is None else rows.valued


def masked_mean(x: jax.Array, mask: jax.Array, counts: Counts) -> jax.Array:
    """Σ x·m / Σ m over all entries; 0 if the mask is empty."""
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
    """Count, mean and squared deviations."""

    size: jax.Array
    mean: jax.Array
    squares: jax.Array  # Σ (x - mean)²

    def variance(self, ddof: int = 0) -> jax.Array:
        return self.squares / jnp.maximum(self.size - ddof, 1.0)


def moments(given: Sequence[tuple[jax.Array, jax.Array]], reduce: Sum = local_sum) -> list[Moments]:
    """Moments of the entries under the mask, for each (numbers, mask). Shards sum twice, however
    many pairs there are."""
    for x, mask in given:
        chex.assert_equal_shape([x, mask])
    firsts = reduce([(mask.sum(), (x * mask).sum()) for x, mask in given])
    means = [total / jnp.maximum(count, 1.0) for count, total in firsts]
    pairs = zip(given, means, strict=True)
    squares = reduce([((x - mean) ** 2 * mask).sum() for (x, mask), mean in pairs])
    counts = [count for count, _ in firsts]
    return [Moments(*each) for each in zip(counts, means, squares, strict=True)]


def standardised(x: jax.Array, known: Moments, eps: float, ddof: int = 0) -> jax.Array:
    """(x - mean) / (std + ε), for all entries, also those outside the mask."""
    return (x - known.mean) / (jnp.sqrt(known.variance(ddof)) + eps)


class MinibatchStats(NamedTuple):
    """Statistics of a whole minibatch, which the loss of each of its microbatches needs."""

    counts: Counts
    advantage: Moments | None  # None where advantages are not normalised over a minibatch
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
