"""The logarithm of Γ, its derivative, and Gamma variates, for α ≥ 1.

log Γ and ψ are Stirling's series at w = z + 6, where Γ(w) = Γ(z)·z(z+1)…(z+5): to 1e-12. They
vectorise, and so do their derivatives; with jax's own functions a gradient takes three times as
long.
"""

import jax
import jax.numpy as jnp
import numpy as np


def log_gamma_reference(z: jax.Array) -> jax.Array:
    """log Γ(z)."""
    return jax.scipy.special.gammaln(z)


def log_gamma(z: jax.Array) -> jax.Array:
    """log Γ(z), z ≥ 1."""
    w, q = z + 6, z * (z + 5)  # the product is q·(q + 4)·(q + 6)
    series = _polynomial(1 / w**2, 1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
    stirling = (w - 0.5) * jnp.log(w) - w + np.log(2 * np.pi) / 2 + series / w
    return stirling - jnp.log(q * (q + 4) * (q + 6))


def digamma_reference(z: jax.Array) -> jax.Array:
    """ψ(z) = d log Γ/dz."""
    return jax.scipy.special.digamma(z)


def digamma(z: jax.Array) -> jax.Array:
    """ψ(z), z ≥ 1."""
    w, q = z + 6, z * (z + 5)
    y = 1 / w**2
    series = _polynomial(y, 1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)
    steps = (2 * z + 5) * (1 / q + 1 / (q + 4) + 1 / (q + 6))
    return jnp.log(w) - 0.5 / w - y * series - steps


def _polynomial(y: jax.Array, *coefficients: float) -> jax.Array:
    total = jnp.zeros_like(y)
    for coefficient in reversed(coefficients):
        total = total * y + coefficient
    return total


Proposals = list[tuple[jax.Array, jax.Array]]  # a normal and an exponential number each


def gamma_variate_reference(alpha: jax.Array, proposals: Proposals) -> jax.Array:
    """Gamma(α, 1) by the method of Marsaglia and Tsang (2000): d·v with v = (1 + z/√(9d))³ and
    d = α - ⅓ is accepted if log(uniform) < z²/2 + d·(1 - v + log v). The first accepted proposal
    counts, or else the last."""
    z, exponential = (jnp.stack(numbers) for numbers in zip(*proposals, strict=True))
    d = jnp.broadcast_to(alpha - 1 / 3, z.shape)
    v = jnp.maximum(1 + z / jnp.sqrt(9 * d), 1e-12) ** 3
    accepted = -exponential < z**2 / 2 + d * (1 - v + jnp.log(v))
    taken = jnp.where(accepted.any(0), accepted.argmax(0), len(proposals) - 1)
    return jnp.take_along_axis(d * v, taken[None], axis=0)[0]


def gamma_variate(alpha: jax.Array, proposals: Proposals) -> jax.Array:
    """The same as a chain of selections, without a gather or a loop."""
    d = alpha - 1 / 3
    taken = None
    for normal, exponential in reversed(proposals):
        v = jnp.maximum(1 + normal / jnp.sqrt(9 * d), 1e-12) ** 3
        accepted = exponential > d * (v - 1 - jnp.log(v)) - normal**2 / 2
        taken = v if taken is None else jnp.where(accepted, v, taken)
    assert taken is not None
    return d * taken
