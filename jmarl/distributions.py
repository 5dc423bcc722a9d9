"""What a policy's last layer means: categorical choices or Gaussians, on distrax.

Log-probabilities and entropies keep one entry per component, `[…, K]`: per head of a discrete
choice, per dimension of a continuous one. Whether the PPO ratio is taken per component or of
their sum is the algorithm's choice. Chance is drawn apart, so that agents who decide in turn can
have theirs drawn at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import distrax
import jax
import jax.numpy as jnp
import numpy as np

from jmarl.spaces import Box, Space

MASKED = -1e10  # not -inf: an impossible choice must not make the entropy's gradient NaN


class Actions(NamedTuple):
    """How to draw, score and encode the actions of one space.

    `logits` `[…, A]` are means for a Box, `scale` its standard deviation (unused otherwise),
    `mask` `[…, A]` what is legal."""

    components: int  # K
    noise: Callable[..., jax.Array]  # (key, shape of logits, dtype) → all the chance there is
    sample: Callable[..., jax.Array]  # (noise, logits, scale, mask) → action
    mode: Callable[..., jax.Array]  # (logits, scale, mask) → action
    log_prob: Callable[..., jax.Array]  # (logits, scale, mask, action) → […, K]
    entropy: Callable[..., jax.Array]  # (logits, scale, mask) → […, K]
    encode: Callable[[jax.Array], jax.Array]  # action → […, A]: one-hot, or the action itself


def choose(
    actions: Actions,
    noise: jax.Array,
    logits: jax.Array,
    scale: jax.Array,
    mask: jax.Array,
    deterministic: bool | jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """An action, drawn with the given noise or the likeliest, and its log-probability. Without
    noise a draw is the likeliest, so that one program can do either."""
    if deterministic is True:
        action = actions.mode(logits, scale, mask)
    else:
        if deterministic is not False:
            noise = jnp.where(deterministic, 0.0, noise)
        action = actions.sample(noise, logits, scale, mask)
    return action, actions.log_prob(logits, scale, mask, action)


def make_actions(space: Space) -> Actions:
    return _gaussian(space) if isinstance(space, Box) else _categorical(space.heads, space.shape)


def _gaussian(space: Box) -> Actions:
    """Independent Gaussians; the padding's entries count for nothing."""

    def normal(logits: jax.Array, scale: jax.Array) -> Any:
        leading = (1,) * (logits.ndim - scale.ndim)
        return distrax.Normal(
            logits, jnp.broadcast_to(scale.reshape(leading + scale.shape), logits.shape)
        )

    def log_prob(
        logits: jax.Array, scale: jax.Array, mask: jax.Array, action: jax.Array
    ) -> jax.Array:
        return normal(logits, scale).log_prob(action) * mask

    return Actions(
        components=space.size,
        noise=jax.random.normal,
        sample=lambda noise, logits, scale, mask: (
            (logits + normal(logits, scale).scale * noise) * mask
        ),
        mode=lambda logits, scale, mask: logits * mask,
        log_prob=log_prob,
        entropy=lambda logits, scale, mask: normal(logits, scale).entropy() * mask,
        encode=lambda action: action,
    )


def _categorical(heads: tuple[int, ...], shape: tuple[int, ...]) -> Actions:
    """One categorical choice per head; without heads of its own an action has no last axis."""
    stops = np.cumsum(heads)[:-1]

    def choices(logits: jax.Array, mask: jax.Array) -> list[Any]:
        legal = jnp.where(mask, logits, MASKED)
        return [distrax.Categorical(logits=part) for part in jnp.split(legal, stops, axis=-1)]

    def joined(parts: list[jax.Array]) -> jax.Array:
        return jnp.stack(parts, axis=-1) if shape else parts[0]

    def parted(action: jax.Array) -> list[jax.Array]:
        return [action[..., k] for k in range(len(heads))] if shape else [action]

    def sample(noise: jax.Array, logits: jax.Array, scale: jax.Array, mask: jax.Array) -> jax.Array:
        """argmax(logits + Gumbel noise) is a draw from softmax(logits)."""
        disturbed = jnp.where(mask, logits, MASKED) + noise
        return joined([part.argmax(-1) for part in jnp.split(disturbed, stops, axis=-1)])

    def log_prob(
        logits: jax.Array, scale: jax.Array, mask: jax.Array, action: jax.Array
    ) -> jax.Array:
        pairs = zip(choices(logits, mask), parted(action), strict=True)
        return jnp.stack([part.log_prob(chosen) for part, chosen in pairs], axis=-1)

    def encode(action: jax.Array) -> jax.Array:
        pairs = zip(parted(action), heads, strict=True)
        return jnp.concatenate([jax.nn.one_hot(chosen, n) for chosen, n in pairs], axis=-1)

    return Actions(
        components=len(heads),
        noise=jax.random.gumbel,
        sample=sample,
        mode=lambda logits, scale, mask: joined([part.mode() for part in choices(logits, mask)]),
        log_prob=log_prob,
        entropy=lambda logits, scale, mask: jnp.stack(
            [part.entropy() for part in choices(logits, mask)], axis=-1
        ),
        encode=encode,
    )
