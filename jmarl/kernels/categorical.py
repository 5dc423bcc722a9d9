"""Categorical choices, one or several for each row: drawn, scored, the likeliest.

`logits` and `mask` `[…, A]` (True: legal; None: everything is) hold the entries of all K choices,
one choice after the other. `heads` says how many entries each has; actions are `[…, K]`. Inside,
the entries of a choice are the first axis: sums over them are then a few operations on long
vectors, not many short sums. (`linear.affine_last` gives logits in that layout.)
"""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.kernels.short_reductions import short_max, short_sum

MASKED = -1e10  # not -inf: an impossible choice must not make the entropy's gradient NaN
Heads = tuple[int, ...]


# -- references ------------------------------------------------------------------------------------


def _legal_logits_reference(
    logits: jax.Array, mask: jax.Array | None, heads: Heads
) -> list[jax.Array]:
    """`[…, n]` of each choice."""
    legal = logits if mask is None else jnp.where(mask, logits, MASKED)
    return jnp.split(legal, np.cumsum(heads)[:-1], axis=-1)


def log_prob_and_entropy_reference(
    logits: jax.Array, mask: jax.Array | None, action: jax.Array, heads: Heads
) -> tuple[jax.Array, jax.Array]:
    """log p = z - log Σ exp z of what was chosen, and H = -Σ p·log p: `[…, K]` each."""
    log_ps = [jax.nn.log_softmax(z, axis=-1) for z in _legal_logits_reference(logits, mask, heads)]
    log_prob = [
        jnp.take_along_axis(log_p, action[..., k : k + 1], axis=-1)[..., 0]
        for k, log_p in enumerate(log_ps)
    ]
    entropy = [-(jnp.exp(log_p) * log_p).sum(-1) for log_p in log_ps]
    return jnp.stack(log_prob, axis=-1), jnp.stack(entropy, axis=-1)


def sample_reference(
    noise: jax.Array, logits: jax.Array, mask: jax.Array | None, heads: Heads
) -> jax.Array:
    """The first choice c with p₀ + … + p_c > u, where u `[…, K]` is uniform in [0, 1)."""
    ps = [jax.nn.softmax(z, axis=-1) for z in _legal_logits_reference(logits, mask, heads)]
    below = [
        (noise[..., k : k + 1] >= jnp.cumsum(p, axis=-1)).sum(-1, dtype=jnp.int32)
        for k, p in enumerate(ps)
    ]
    return jnp.stack(below, axis=-1)


def mode_reference(logits: jax.Array, mask: jax.Array | None, heads: Heads) -> jax.Array:
    """argmax z."""
    parts = _legal_logits_reference(logits, mask, heads)
    return jnp.stack([z.argmax(-1) for z in parts], axis=-1)


# -- all choices of all rows -----------------------------------------------------------------------


def log_prob_and_entropy(
    logits: jax.Array, mask: jax.Array | None, action: jax.Array, heads: Heads
) -> tuple[jax.Array, jax.Array]:
    """Log-probability of the action, and entropy: `[…, K]` each."""
    parts = _legal_logits(logits, mask, heads)
    scores = [_score(part, action[..., k].reshape(-1)) for k, part in enumerate(parts)]
    log_prob, entropy = zip(*scores, strict=True)
    return _stacked(log_prob, logits), _stacked(entropy, logits)


def sample(noise: jax.Array, logits: jax.Array, mask: jax.Array | None, heads: Heads) -> jax.Array:
    """Actions `[…, K]` drawn with uniform noise `[…, K]` in [0, 1)."""
    points = noise.reshape(-1, len(heads)).T
    pairs = zip(_legal_logits(logits, mask, heads), points, strict=True)
    return _stacked([_sample_index(part, point) for part, point in pairs], logits)


def mode(logits: jax.Array, mask: jax.Array | None, heads: Heads) -> jax.Array:
    """The likeliest action `[…, K]`."""
    return _stacked([part.argmax(0) for part in _legal_logits(logits, mask, heads)], logits)


def _legal_logits(logits: jax.Array, mask: jax.Array | None, heads: Heads) -> list[jax.Array]:
    """`[n, R]` of each choice, for all rows."""
    transposed = logits.reshape(-1, logits.shape[-1]).T
    if mask is not None:
        transposed = jnp.where(mask.reshape(-1, mask.shape[-1]).T, transposed, MASKED)
    return jnp.split(transposed, np.cumsum(heads)[:-1])


def _stacked(parts: Sequence[jax.Array], like: jax.Array) -> jax.Array:
    """`[R]` of each choice → `[…, K]`, for the rows of `like` `[…, A]`."""
    return jnp.stack(parts, axis=-1).reshape(*like.shape[:-1], len(parts))


# -- one choice of each row, its entries on the first axis -----------------------------------------


def _log_softmax(logits: jax.Array) -> jax.Array:
    """z - log Σ exp z, `[n, R]`."""
    centred = logits - jax.lax.stop_gradient(short_max(logits))[None]
    return centred - jnp.log(short_sum(jnp.exp(centred)))[None]


def _select(rows: jax.Array, chosen: jax.Array) -> jax.Array:
    """`[n, R]`, `[R]` → `[R]`: the chosen one of n entries. A sum of selections, because the
    gradient of a gather is a scatter, which is slow."""
    return short_sum(jnp.where(_is(chosen, len(rows)), rows, 0.0))


def _is(chosen: jax.Array, count: int) -> jax.Array:
    """`[R]` → `[count, R]` bool, one-hot."""
    return chosen[None] == jnp.arange(count, dtype=chosen.dtype)[:, None]


@jax.custom_vjp
def _score(logits: jax.Array, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`[n, R]`, `[R]` → log-probability of what was chosen, and entropy: both `[R]`."""
    return _score_forward(logits, chosen)[0]


def _score_forward(logits: jax.Array, chosen: jax.Array) -> tuple[tuple[jax.Array, jax.Array], Any]:
    log_p = _log_softmax(logits)
    entropy = -short_sum(jnp.exp(log_p) * log_p)
    return (_select(log_p, chosen), entropy), (log_p, entropy, chosen)


def _score_gradient(residuals: Any, grads: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
    """∂log p_c/∂z_k = 1[k = c] - p_k;  ∂H/∂z_k = -p_k·(log p_k + H)."""
    log_p, entropy, chosen = residuals
    of_log_prob, of_entropy = (grad[None] for grad in grads)
    p, hit = jnp.exp(log_p), _is(chosen, len(log_p))
    return of_log_prob * (hit - p) - of_entropy * p * (log_p + entropy[None]), None


_score.defvjp(_score_forward, _score_gradient)


def _sample_index(logits: jax.Array, point: jax.Array) -> jax.Array:
    """`[n, R]` → `[R]`: the first choice whose weight and those before it add up to more than the
    point's share of the whole."""
    weights = jnp.exp(logits - short_max(logits)[None])
    below = list(itertools.accumulate(weights))
    # A point of 0 stands for all numbers up to ε, so take their middle: at exactly 0 the first
    # action would be drawn however improbable it is. At the other end rounding keeps the product
    # below the last sum, so no improbable action there is drawn either.
    point = jnp.maximum(point, jnp.finfo(point.dtype).eps / 2) * below[-1]
    return short_sum(jnp.stack([(point >= edge).astype(jnp.int32) for edge in below]))
