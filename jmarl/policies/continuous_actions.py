"""Distributions of continuous actions, independent over dimensions.

All three have the same two parameters: `logits` `[…, D]`, which the network gives, and `scale`,
the noise's own parameter, which does not depend on what is seen. So one network serves any of
them, and padding is masked alike. `log_prob` and `entropy` have one entry a dimension.

The two with bounds recover x, the action's place between its bounds, from the action itself. They
keep it a rounding error away from 0 and 1, where densities are 0 or infinite. Acting and learning
score the same stored number, so the PPO ratio starts at 1 even at a bound.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jmarl.envs.spaces import Box
from jmarl.kernels.gamma import digamma, gamma_variate, log_gamma
from jmarl.literals import Distribution
from jmarl.types import Noise

# log σ at the start. A wide tanh draws most actions near a bound; simple_spread learns faster so.
LOG_STD: dict[Distribution, float] = {"gaussian": 0.0, "tanh": 1.0, "beta": 0.0}
ROUNDS = 3  # proposals for each Gamma variate; all are rejected once in 9,000 times at most
NODES = 8  # of the quadrature for the entropy of `tanh`


class Continuous(Protocol):
    def noise(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> Noise:
        """All random numbers that samples of this shape need, leaves of this shape."""
        ...

    def sample(self, noise: Noise, logits: jax.Array, scale: jax.Array) -> jax.Array: ...

    def mode(self, logits: jax.Array) -> jax.Array:
        """The deterministic action."""
        ...

    def log_prob(self, logits: jax.Array, scale: jax.Array, action: jax.Array) -> jax.Array: ...

    def entropy(self, logits: jax.Array, scale: jax.Array) -> jax.Array: ...


def make_continuous(space: Box, distribution: Distribution) -> Continuous:
    if distribution == "gaussian":
        return Gaussian()
    return TanhGaussian(space) if distribution == "tanh" else Beta(space)


@dataclass(frozen=True)
class Gaussian:
    """a = μ + σ·z without bounds: worlds clip it. μ = logits, σ = scale."""

    def noise(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        return jax.random.normal(key, shape, dtype)

    def sample(self, noise: jax.Array, logits: jax.Array, scale: jax.Array) -> jax.Array:
        return logits + _spread(scale, logits) * noise

    def mode(self, logits: jax.Array) -> jax.Array:
        return logits

    def log_prob(self, logits: jax.Array, scale: jax.Array, action: jax.Array) -> jax.Array:
        return _normal(logits, scale).log_prob(action)

    def entropy(self, logits: jax.Array, scale: jax.Array) -> jax.Array:
        return _normal(logits, scale).entropy()


@dataclass(frozen=True)
class TanhGaussian:
    """u = μ + σ·z, a = low + (high - low)·(1 + tanh u)/2. μ = logits, σ = scale.

    With x = (1 + tanh u)/2 = sigmoid(2u): u = (log x - log(1 - x))/2 and
    da/du = 2·(high - low)·x·(1 - x).
    """

    space: Box

    def noise(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        return jax.random.normal(key, shape, dtype)

    def sample(self, noise: jax.Array, logits: jax.Array, scale: jax.Array) -> jax.Array:
        return self.mode(logits + _spread(scale, logits) * noise)

    def mode(self, logits: jax.Array) -> jax.Array:
        """The squashed mean."""
        return self.space.from_unit(jax.nn.sigmoid(2 * logits))

    def log_prob(self, logits: jax.Array, scale: jax.Array, action: jax.Array) -> jax.Array:
        """log N(u; μ, σ) - log da/du."""
        log_x, log_rest = _logs(self.space, action)
        u = (log_x - log_rest) / 2
        log_slope = log_x + log_rest + np.log(2.0) + self.space.log_width(logits)
        return _normal(logits, scale).log_prob(u) - log_slope

    def entropy(self, logits: jax.Array, scale: jax.Array) -> jax.Array:
        """H(N) + E[log da/du]. The expectation has no closed form: it is a Gauss-Hermite
        quadrature, a smooth function of μ and σ, so its gradient is that of what it computes."""
        scale = _spread(scale, logits)
        gaussian = _normal(logits, scale).entropy()
        points, weights = np.polynomial.hermite_e.hermegauss(NODES)
        weights = weights / weights.sum()
        slopes = [w * _log_slope(logits + scale * z) for z, w in zip(points, weights, strict=True)]
        return gaussian + sum(slopes) + np.log(0.5) + self.space.log_width(logits)


def _log_slope(u: jax.Array) -> jax.Array:
    """log(1 - tanh² u) = 2·(log 2 - |u| - log(1 + exp(-2|u|))), without cancellation."""
    size = jnp.abs(u)
    return 2 * (np.log(2.0) - size - jnp.log(1 + jnp.exp(-2 * size)))


@dataclass(frozen=True)
class Beta:
    """a = low + (high - low)·x, x ~ Beta(1 + κ·m, 1 + κ·(1 - m)): one peak, at m = sigmoid(logits).

    κ = 1/scale², so that far from the bounds σ(x) ≈ scale·√(m(1 - m)). As κ goes to 0 the
    distribution becomes uniform.
    """

    space: Box

    def noise(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> Noise:
        """For two Gamma variates: a normal and an exponential number for each proposal."""
        normal_key, exponential_key = jax.random.split(key)
        many = (2 * ROUNDS, *shape)
        normal = jax.random.normal(normal_key, many, dtype)
        return tuple(normal), tuple(jax.random.exponential(exponential_key, many, dtype))

    def sample(self, noise: Noise, logits: jax.Array, scale: jax.Array) -> jax.Array:
        """G₁/(G₁ + G₂) of two Gamma variates."""
        above, below = _peaked(logits, scale)
        pairs = list(zip(*noise, strict=True))
        first = gamma_variate(1 + above, pairs[:ROUNDS])
        second = gamma_variate(1 + below, pairs[ROUNDS:])
        return self.space.from_unit(first / (first + second))

    def mode(self, logits: jax.Array) -> jax.Array:
        return self.space.from_unit(jax.nn.sigmoid(logits))

    def log_prob(self, logits: jax.Array, scale: jax.Array, action: jax.Array) -> jax.Array:
        """(α - 1)·log x + (β - 1)·log(1 - x) - log B(α, β) - log(high - low)."""
        above, below = _peaked(logits, scale)
        log_x, log_rest = _logs(self.space, action)
        constant = _log_beta(1 + above, 1 + below) + self.space.log_width(logits)
        return above * log_x + below * log_rest - constant

    def entropy(self, logits: jax.Array, scale: jax.Array) -> jax.Array:
        """log B - (α - 1)·ψ(α) - (β - 1)·ψ(β) + (α + β - 2)·ψ(α + β) + log(high - low)."""
        above, below = _peaked(logits, scale)
        both = above + below
        constant = _log_beta(1 + above, 1 + below) + self.space.log_width(logits)
        expected = above * digamma(1 + above) + below * digamma(1 + below)
        return constant - expected + both * digamma(2 + both)


def _peaked(logits: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
    """α - 1 and β - 1."""
    concentration = 1 / _spread(scale, logits) ** 2
    return concentration * jax.nn.sigmoid(logits), concentration * jax.nn.sigmoid(-logits)


def _log_beta(alpha: jax.Array, beta: jax.Array) -> jax.Array:
    """log B(α, β). (jax's own betaln approximates it to only 1e-6 where α or β is above 8.)"""
    return log_gamma(alpha) + log_gamma(beta) - log_gamma(alpha + beta)


def _normal(logits: jax.Array, scale: jax.Array) -> Any:
    import distrax  # takes two seconds, and few programs need it

    return distrax.Normal(logits, _spread(scale, logits))


def _spread(scale: jax.Array, logits: jax.Array) -> jax.Array:
    """[…, D]"""
    leading = (1,) * (logits.ndim - scale.ndim)
    return jnp.broadcast_to(scale.reshape(leading + scale.shape), logits.shape)


def _logs(space: Box, action: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log x and log(1 - x) of the action's place between its bounds."""
    edge = float(jnp.finfo(action.dtype).eps)
    x = jnp.clip(space.to_unit(action), edge, 1 - edge)
    return jnp.log(x), jnp.log1p(-x)
