"""Running statistics: of value targets (ValueNorm, PopArt), of observations and of rewards."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jmarl.shards import Sum, alone

BETA = 0.99999  # a Python float: 1 - float32(β) would be 0.14 % off
EPSILON = 1e-5
MIN_VARIANCE = 1e-2


class ValueNorm(struct.PyTreeNode):
    """Debiased exponential averages of targets and their squares. Before the first update the
    mean is 0 and the variance at its floor, so that values are denormalised by 0.1."""

    mean: jax.Array  # biased averages
    square: jax.Array
    debias: jax.Array

    @classmethod
    def create(cls) -> "ValueNorm":
        zero = jnp.zeros(())
        return cls(zero, zero, zero)

    @classmethod
    def from_sums(cls, mean: float, square: float, debias: float) -> "ValueNorm":
        """From the references' running_mean, running_mean_sq and debiasing_term."""
        return cls(jnp.asarray(mean), jnp.asarray(square), jnp.asarray(debias))

    def update(self, mean: jax.Array, square: jax.Array) -> "ValueNorm":
        """μ ← βμ + (1-β)·mean(x), likewise for x² and for 1; given are those means over all of a
        minibatch's targets."""
        old = jnp.stack([self.mean, self.square, self.debias])
        new = jnp.stack([mean, square, jnp.ones_like(mean)])
        return ValueNorm(*(BETA * old + (1 - BETA) * new))

    def moments(self) -> tuple[jax.Array, jax.Array]:
        """Debiased mean and standard deviation, the variance at least 0.01."""
        scale = jnp.maximum(self.debias, EPSILON)
        mean = self.mean / scale
        return mean, jnp.sqrt(jnp.maximum(self.square / scale - mean**2, MIN_VARIANCE))

    def normalise(self, x: jax.Array) -> jax.Array:
        mean, std = self.moments()
        return (x - mean) / std

    def denormalise(self, x: jax.Array) -> jax.Array:
        mean, std = self.moments()
        return x * std + mean


def popart_rescale(params: Any, head: tuple[str, ...], old: ValueNorm, new: ValueNorm) -> Any:
    """Parameters whose value head `{kernel, bias}`, found at path `head`, predicts under `new`
    what it did under `old`: W ← W·σ_o/σ_n, b ← (σ_o·b + μ_o - μ_n)/σ_n. van Hasselt et al. 2016."""
    if head:
        inner = popart_rescale(params[head[0]], head[1:], old, new)
        return {**params, head[0]: inner}
    (old_mean, old_std), (new_mean, new_std) = old.moments(), new.moments()
    return {
        "kernel": params["kernel"] * (old_std / new_std),
        "bias": (old_std * params["bias"] + old_mean - new_mean) / new_std,
    }


class RunningMoments(struct.PyTreeNode):
    """Mean and variance of all rows seen, merged batch by batch. Chan et al. 1979."""

    mean: jax.Array  # […]
    variance: jax.Array
    count: jax.Array

    @classmethod
    def create(cls, shape: tuple[int, ...], count: float = 1e-4) -> "RunningMoments":
        return cls(jnp.zeros(shape), jnp.ones(shape), jnp.asarray(count))

    def update(self, rows: jax.Array, across: Sum = alone) -> "RunningMoments":
        """`rows`: `[B, …]`."""
        size, sums = across((jnp.asarray(rows.shape[0], rows.dtype), rows.sum(0)))
        mean = sums / size
        total, delta = self.count + size, mean - self.mean
        squares = self.variance * self.count + across(((rows - mean[None]) ** 2).sum(0))
        between = delta**2 * (self.count * size / total)
        return RunningMoments(
            mean=self.mean + delta * (size / total),
            variance=(squares + between) / total,
            count=total,
        )

    def normalise(self, x: jax.Array, eps: float = 1e-8, clip: float = 10.0) -> jax.Array:
        """(x - μ)/√(σ² + ε), within ±clip; `x` may have further leading axes."""
        leading = (1,) * (x.ndim - self.mean.ndim)
        mean, variance = (m.reshape(leading + m.shape) for m in (self.mean, self.variance))
        return jnp.clip((x - mean) / jnp.sqrt(variance + eps), -clip, clip)


class RewardScale(struct.PyTreeNode):
    """Rewards in units of the deviation of their discounted sum; the mean stays, for shifting it
    would change what is best. As gymnasium's NormalizeReward: an episode that was only cut short
    runs on, and the reward of a true end begins the next sum."""

    running: jax.Array  # [E, N] Σ γᵏ·r so far
    moments: RunningMoments  # [] of `running`, over all worlds, agents and steps

    @classmethod
    def create(cls, num_envs: int, num_agents: int) -> "RewardScale":
        return cls(jnp.zeros((num_envs, num_agents)), RunningMoments.create(()))

    def update(
        self,
        reward: jax.Array,
        terminated: jax.Array,
        gamma: jax.Array | float,
        across: Sum = alone,
    ) -> "RewardScale":
        going_on = 1.0 - terminated.astype(reward.dtype)
        running = self.running * gamma * going_on[:, None] + reward
        return RewardScale(running, self.moments.update(running.reshape(-1), across))

    def normalise(self, reward: jax.Array, eps: float = 1e-8, clip: float = 10.0) -> jax.Array:
        return jnp.clip(reward / jnp.sqrt(self.moments.variance + eps), -clip, clip)


class Normalisers(NamedTuple):
    """What stands between the worlds and the learner; None: nothing."""

    obs: RunningMoments | None = None  # [N, O], merged over the worlds at every step
    reward: RewardScale | None = None

    def seen(self, obs: jax.Array) -> jax.Array:
        """[…, N, O] as the policy sees them."""
        return obs if self.obs is None else self.obs.normalise(obs)

    def paid(self, reward: jax.Array) -> jax.Array:
        """[E, N] as the learner counts them."""
        return reward if self.reward is None else self.reward.normalise(reward)

    def observe(self, obs: jax.Array, across: Sum = alone) -> "Normalisers":
        return self if self.obs is None else self._replace(obs=self.obs.update(obs, across))

    def reward_observed(
        self,
        reward: jax.Array,
        terminated: jax.Array,
        gamma: jax.Array | float,
        across: Sum = alone,
    ) -> "Normalisers":
        if self.reward is None:
            return self
        return self._replace(reward=self.reward.update(reward, terminated, gamma, across))


UNCHANGED = Normalisers()
