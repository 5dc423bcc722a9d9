"""What a policy's last layer means: categorical choices, or continuous actions.

Log-probabilities and entropies keep one entry per component, `[…, K]`: per head of a discrete
choice, per dimension of a continuous one. Whether the PPO ratio is taken per component or of
their sum is the algorithm's choice. Noise is drawn apart, so that agents who decide in turn can
have theirs drawn at once.
"""

from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jmarl.envs.spaces import Box, Space
from jmarl.kernels import categorical
from jmarl.literals import Distribution
from jmarl.policies.continuous_actions import Continuous, make_continuous
from jmarl.types import Noise


class Actions(Protocol):
    """How to draw, score and encode the actions of one space.

    `logits` `[…, A]` and `scale` are a continuous distribution's two parameters (`scale` is unused
    otherwise), `mask` `[…, A]` is what is legal; None: everything is."""

    @property
    def components(self) -> int:
        """K"""
        ...

    def noise(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> Noise:
        """All random numbers of samples; `shape` is that of their logits."""
        ...

    def sample(
        self, noise: Noise, logits: jax.Array, scale: jax.Array, mask: jax.Array | None
    ) -> jax.Array: ...

    def mode(self, logits: jax.Array, scale: jax.Array, mask: jax.Array | None) -> jax.Array: ...

    def log_prob(
        self, logits: jax.Array, scale: jax.Array, mask: jax.Array | None, action: jax.Array
    ) -> jax.Array:
        """`[…, K]`"""
        ...

    def evaluate(
        self, logits: jax.Array, scale: jax.Array, mask: jax.Array | None, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Log-probability and entropy, both `[…, K]`."""
        ...

    def encode(self, action: jax.Array) -> jax.Array:
        """`[…, A]`: one-hot, or the action itself."""
        ...


def choose(
    actions: Actions,
    noise: Noise,
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
        return ContinuousActions(make_continuous(space, distribution), space.size)
    return CategoricalActions(space.heads, space.shape)


@dataclass(frozen=True)
class ContinuousActions:
    """One component per dimension. Padding, where the mask is 0, counts for nothing."""

    distribution: Continuous
    components: int

    def noise(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> Noise:
        return self.distribution.noise(key, shape, dtype)

    def sample(
        self, noise: Noise, logits: jax.Array, scale: jax.Array, mask: jax.Array | None
    ) -> jax.Array:
        return _masked(self.distribution.sample(noise, logits, scale), mask)

    def mode(self, logits: jax.Array, scale: jax.Array, mask: jax.Array | None) -> jax.Array:
        del scale
        return _masked(self.distribution.mode(logits), mask)

    def log_prob(
        self, logits: jax.Array, scale: jax.Array, mask: jax.Array | None, action: jax.Array
    ) -> jax.Array:
        return _masked(self.distribution.log_prob(logits, scale, action), mask)

    def evaluate(
        self, logits: jax.Array, scale: jax.Array, mask: jax.Array | None, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        entropy = _masked(self.distribution.entropy(logits, scale), mask)
        return self.log_prob(logits, scale, mask, action), entropy

    def encode(self, action: jax.Array) -> jax.Array:
        return action


def _masked(x: jax.Array, mask: jax.Array | None) -> jax.Array:
    return x if mask is None else x * mask


@dataclass(frozen=True)
class CategoricalActions:
    """One categorical choice per head. An action of a single choice has no last axis."""

    heads: tuple[int, ...]  # their numbers of choices
    shape: tuple[int, ...]  # of an action: `(K,)`, or `()`

    @property
    def components(self) -> int:
        return len(self.heads)

    def noise(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> Noise:
        return jax.random.uniform(key, (*shape[:-1], self.components), dtype)

    def sample(
        self, noise: Noise, logits: jax.Array, scale: jax.Array, mask: jax.Array | None
    ) -> jax.Array:
        del scale
        return self._from_heads(categorical.sample(noise, logits, mask, self.heads))

    def mode(self, logits: jax.Array, scale: jax.Array, mask: jax.Array | None) -> jax.Array:
        del scale
        return self._from_heads(categorical.mode(logits, mask, self.heads))

    def log_prob(
        self, logits: jax.Array, scale: jax.Array, mask: jax.Array | None, action: jax.Array
    ) -> jax.Array:
        return self.evaluate(logits, scale, mask, action)[0]

    def evaluate(
        self, logits: jax.Array, scale: jax.Array, mask: jax.Array | None, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        del scale
        chosen = self._to_heads(action)
        return categorical.log_prob_and_entropy(logits, mask, chosen, self.heads)

    def encode(self, action: jax.Array) -> jax.Array:
        chosen = self._to_heads(action)
        one_hot = [jax.nn.one_hot(chosen[..., k], n) for k, n in enumerate(self.heads)]
        return jnp.concatenate(one_hot, axis=-1)

    def _to_heads(self, action: jax.Array) -> jax.Array:
        """`[…, K]`"""
        return action if self.shape else action[..., None]

    def _from_heads(self, action: jax.Array) -> jax.Array:
        return action if self.shape else action[..., 0]
