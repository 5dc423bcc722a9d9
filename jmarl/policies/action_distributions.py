"""What a policy's last layer means: categorical choices, or continuous actions.

Log-probabilities and entropies keep one entry per component, `[…, K]`: per head of a discrete
choice, per dimension of a continuous one. Whether the PPO ratio is taken per component or of
their sum is the algorithm's choice. Chance is drawn apart, so that agents who decide in turn can
have theirs drawn at once.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.envs.spaces import Box, Space
from jmarl.kernels.short_reductions import greatest, total
from jmarl.literals import Distribution
from jmarl.policies.continuous_actions import Continuous, make_continuous

MASKED = -1e10  # not -inf: an impossible choice must not make the entropy's gradient NaN


class Actions(NamedTuple):
    """How to draw, score and encode the actions of one space.

    `logits` `[…, A]` and `scale` are a continuous distribution's two parameters (`scale` is unused
    otherwise), `mask` `[…, A]` what is legal; None: everything is."""

    components: int  # K
    noise: Callable[..., Any]  # (key, shape of logits, dtype) → all random numbers of a sample
    sample: Callable[..., jax.Array]  # (noise, logits, scale, mask) → action
    mode: Callable[..., jax.Array]  # (logits, scale, mask) → action
    log_prob: Callable[..., jax.Array]  # (logits, scale, mask, action) → […, K]
    evaluate: Callable[..., tuple[jax.Array, jax.Array]]  # likewise → log_prob, entropy […, K]
    encode: Callable[[jax.Array], jax.Array]  # action → […, A]: one-hot, or the action itself


def choose(
    actions: Actions,
    noise: Any,
    logits: jax.Array,
    scale: jax.Array,
    mask: jax.Array | None,
    deterministic: bool | jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """An action, drawn with the given noise or the likeliest, and its log-probability. Where that
    is decided only at run time, one program does both."""
    if deterministic is True:
        action = actions.mode(logits, scale, mask)
    else:
        action = actions.sample(noise, logits, scale, mask)
        if deterministic is not False:
            action = jnp.where(deterministic, actions.mode(logits, scale, mask), action)
    return action, actions.log_prob(logits, scale, mask, action)


def make_actions(space: Space, distribution: Distribution = "gaussian") -> Actions:
    """`distribution` is of continuous actions."""
    if isinstance(space, Box):
        return _continuous(make_continuous(space, distribution), space.size)
    return _categorical(space.heads, space.shape)


def _continuous(drawn_from: Continuous, size: int) -> Actions:
    """One component a dimension; the padding's entries count for nothing."""

    def counted(x: jax.Array, mask: jax.Array | None) -> jax.Array:
        return x if mask is None else x * mask

    def log_prob(
        logits: jax.Array, scale: jax.Array, mask: jax.Array | None, action: jax.Array
    ) -> jax.Array:
        return counted(drawn_from.log_prob(logits, scale, action), mask)

    def evaluate(
        logits: jax.Array, scale: jax.Array, mask: jax.Array | None, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        entropy = counted(drawn_from.entropy(logits, scale), mask)
        return log_prob(logits, scale, mask, action), entropy

    return Actions(
        components=size,
        noise=drawn_from.noise,
        sample=lambda noise, logits, scale, mask: counted(
            drawn_from.sample(noise, logits, scale), mask
        ),
        mode=lambda logits, scale, mask: counted(drawn_from.mode(logits), mask),
        log_prob=log_prob,
        evaluate=evaluate,
        encode=lambda action: action,
    )


def _categorical(heads: tuple[int, ...], shape: tuple[int, ...]) -> Actions:
    """One categorical choice per head; without heads of its own an action has no last axis."""
    stops = np.cumsum(heads)[:-1]

    def choices(logits: jax.Array, mask: jax.Array | None) -> list[jax.Array]:
        """Per head legal logits, `[n, R]` of all rows: choices come first, so that what is computed
        over them is a few long vectors and not many short sums. (A network's last layer gives them
        that way, seen from the other side.)"""
        turned = logits.reshape(-1, logits.shape[-1]).T
        if mask is not None:
            turned = jnp.where(mask.reshape(-1, mask.shape[-1]).T, turned, MASKED)
        return jnp.split(turned, stops)

    def joined(parts: list[jax.Array], like: jax.Array) -> jax.Array:
        """Actions of the rows of `like` `[…, A]`."""
        apart = [part.reshape(like.shape[:-1]) for part in parts]
        return jnp.stack(apart, axis=-1) if shape else apart[0]

    def parted(action: jax.Array) -> list[jax.Array]:
        return [action[..., k] for k in range(len(heads))] if shape else [action]

    def stacked(parts: Sequence[jax.Array], like: jax.Array) -> jax.Array:
        return jnp.stack(parts, axis=-1).reshape(*like.shape[:-1], len(heads))

    def sample(
        noise: jax.Array, logits: jax.Array, scale: jax.Array, mask: jax.Array | None
    ) -> jax.Array:
        """The first choice whose probability and those before it add up to more than the noise."""
        points = noise.reshape(-1, len(heads)).T
        pairs = zip(choices(logits, mask), points, strict=True)
        return joined([drawn(part, point) for part, point in pairs], logits)

    def evaluate(
        logits: jax.Array, scale: jax.Array, mask: jax.Array | None, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        pairs = zip(choices(logits, mask), parted(action), strict=True)
        scores = [scored(part, choice.reshape(-1)) for part, choice in pairs]
        log_prob, entropy = zip(*scores, strict=True)
        return stacked(log_prob, logits), stacked(entropy, logits)

    def mode(logits: jax.Array, scale: jax.Array, mask: jax.Array | None) -> jax.Array:
        return joined([part.argmax(0) for part in choices(logits, mask)], logits)

    def encode(action: jax.Array) -> jax.Array:
        pairs = zip(parted(action), heads, strict=True)
        return jnp.concatenate([jax.nn.one_hot(chosen, n) for chosen, n in pairs], axis=-1)

    return Actions(
        components=len(heads),
        noise=lambda key, of, dtype: jax.random.uniform(key, (*of[:-1], len(heads)), dtype),
        sample=sample,
        mode=mode,
        log_prob=lambda *given: evaluate(*given)[0],
        evaluate=evaluate,
        encode=encode,
    )


# -- choices on the first axis ---------------------------------------------------------------------


def log_softmax(logits: jax.Array) -> jax.Array:
    """`[n, …]`: z - log Σ exp z, over the choices."""
    centred = logits - jax.lax.stop_gradient(greatest(logits))[None]
    return centred - jnp.log(total(jnp.exp(centred)))[None]


def picked(rows: jax.Array, chosen: jax.Array) -> jax.Array:
    """`[n, R]`, `[R]` → `[R]`: the chosen one of n, as a sum of selections: the gradient of a
    gather is a scatter, which is slow."""
    return total(jnp.where(_is(chosen, len(rows)), rows, 0.0))


def _is(chosen: jax.Array, count: int) -> jax.Array:
    """`[R]` → `[count, R]` bool, one-hot."""
    return chosen[None] == jnp.arange(count, dtype=chosen.dtype)[:, None]


@jax.custom_vjp
def scored(logits: jax.Array, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`[n, R]`, `[R]` → log-probability of what was chosen, and entropy: both `[R]`."""
    return _scored(logits, chosen)[0]


def _scored(logits: jax.Array, chosen: jax.Array) -> tuple[tuple[jax.Array, jax.Array], Any]:
    log_p = log_softmax(logits)
    entropy = -total(jnp.exp(log_p) * log_p)
    return (picked(log_p, chosen), entropy), (log_p, entropy, chosen)


def _scored_gradient(kept: Any, grads: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
    """∂log p_c/∂z_k = 1[k = c] - p_k;  ∂H/∂z_k = -p_k·(log p_k + H)."""
    log_p, entropy, chosen = kept
    of_log_prob, of_entropy = (grad[None] for grad in grads)
    p, hit = jnp.exp(log_p), _is(chosen, len(log_p))
    return of_log_prob * (hit - p) - of_entropy * p * (log_p + entropy[None]), None


scored.defvjp(_scored, _scored_gradient)


def drawn(logits: jax.Array, point: jax.Array) -> jax.Array:
    """`[n, …]` → `[…]`: a choice from softmax(logits), by a point that is uniform in [0, 1)."""
    weights = jnp.exp(logits - greatest(logits)[None])
    below = list(itertools.accumulate(weights))
    # A point of 0 stands for all numbers up to ε, so take their middle: at exactly 0 the first
    # action would be drawn however improbable it is. At the other end rounding keeps the product
    # below the last sum, so no improbable action there is drawn either.
    point = jnp.maximum(point, jnp.finfo(point.dtype).eps / 2) * below[-1]
    return total(jnp.stack([(point >= edge).astype(jnp.int32) for edge in below]))
