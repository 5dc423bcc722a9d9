"""Running statistics: of value targets (ValueNorm, PopArt), of observations and of rewards."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jmarl.learning.collectives import Sum, alone
from jmarl.learning.finite import all_finite, select

BETA = 0.99999  # a Python float: 1 - float32(β) would be 0.14 % off
EPSILON = 1e-5
MIN_VARIANCE = 1e-2
MANY_UPDATES = 2**30  # by then βⁿ is 0, so counting further would only overflow


def add(total: jax.Array, rest: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
    """total + rest + step, rounded, and the rounding error, which is the next `rest`. Without it
    float32 drops every step below total·2⁻²⁵, and long averages stop moving. Kahan 1965."""
    step = step + rest
    rounded = total + step
    return rounded, step - (rounded - total)


def merged_moments(
    known: "ValueNorm | RunningMoments", mean: jax.Array, variance: jax.Array, weight: jax.Array
) -> dict[str, jax.Array]:
    """Mean and variance after a batch of so much weight w. With δ = mean - μ:
    μ ← μ + w·δ;  σ² ← σ² + w·(variance + (1-w)·δ² - σ²). Also their rounding errors."""
    delta = (mean - known.mean) - known.mean_rest
    change = (variance - known.variance) - known.variance_rest + (1 - weight) * delta**2
    new_mean, mean_rest = add(known.mean, known.mean_rest, weight * delta)
    new_variance, variance_rest = add(known.variance, known.variance_rest, weight * change)
    return {
        "mean": new_mean,
        "variance": new_variance,
        "mean_rest": mean_rest,
        "variance_rest": variance_rest,
    }


class ValueNorm(struct.PyTreeNode):
    """Exponential mean and variance of targets, debiased as Adam debiases its averages. Before the
    first update the mean is 0 and the variance at its floor, so values are denormalised by 0.1.

    The references keep biased sums of x, x² and 1 (`from_sums`, `sums`). In float32 those lose the
    variance: the sum of 1 stops short of 1, and E[x²] - E[x]² cancels. Hence this centred form.
    """

    mean: jax.Array
    variance: jax.Array  # without its floor
    mean_rest: jax.Array  # rounding errors, see `add`
    variance_rest: jax.Array
    updates: jax.Array  # int32, at most MANY_UPDATES

    @classmethod
    def create(cls) -> "ValueNorm":
        zero = jnp.zeros(())
        return cls(zero, zero, zero, zero, jnp.zeros((), jnp.int32))

    @classmethod
    def from_sums(cls, mean: float, square: float, debias: float) -> "ValueNorm":
        """From the references' running_mean, running_mean_sq and debiasing_term."""
        scale = max(float(debias), EPSILON)
        average = float(mean) / scale
        updates = math.log1p(-min(float(debias), 1 - 1e-7)) / math.log(BETA)
        zero = jnp.zeros(())
        return cls(
            jnp.asarray(average),
            jnp.asarray(float(square) / scale - average**2),
            zero,
            zero,
            jnp.asarray(round(updates), jnp.int32),
        )

    def sums(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The references' running_mean, running_mean_sq and debiasing_term."""
        debias = _debiasing_term(self.updates)
        return debias * self.mean, debias * (self.variance + self.mean**2), debias

    def update(self, mean: jax.Array, variance: jax.Array) -> "ValueNorm":
        """`mean` and `variance` are of all of a minibatch's targets. The n-th minibatch has the
        weight (1-β)/(1-βⁿ)."""
        updates = jnp.minimum(self.updates, MANY_UPDATES - 1) + 1
        weight = (1 - BETA) / _debiasing_term(updates)
        return ValueNorm(**merged_moments(self, mean, variance, weight), updates=updates)

    def moments(self) -> tuple[jax.Array, jax.Array]:
        """Mean and standard deviation, the variance at least 0.01."""
        # The references divide their sums by at least ε, and 1 - β is below it by a hair: after the
        # first update, E[x] and E[x²] are too small by one part in 10¹¹.
        low = jnp.where(self.updates == 1, 1 - (1 - BETA) / EPSILON, 0.0)
        variance = (1 - low) * (self.variance + low * self.mean**2)
        return (1 - low) * self.mean, jnp.sqrt(jnp.maximum(variance, MIN_VARIANCE))

    def normalise(self, x: jax.Array) -> jax.Array:
        mean, std = self.moments()
        return (x - mean) / std

    def denormalise(self, x: jax.Array) -> jax.Array:
        mean, std = self.moments()
        return x * std + mean


def _debiasing_term(updates: jax.Array) -> jax.Array:
    """1 - βⁿ, without cancellation."""
    return -jnp.expm1(updates * math.log(BETA))


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
    mean_rest: jax.Array  # rounding errors, see `add`
    variance_rest: jax.Array
    count_rest: jax.Array

    @classmethod
    def create(
        cls, shape: tuple[int, ...], counts: tuple[int, ...] = (), count: float = 1e-4
    ) -> "RunningMoments":
        """`counts` is the shape of the counts of rows, which broadcasts to `shape`; each begins as
        `count`, gymnasium's."""
        zeros, none = jnp.zeros(shape), jnp.zeros(counts)
        return cls(zeros, jnp.ones(shape), jnp.full(counts, count), zeros, zeros, none)

    def update(
        self, rows: jax.Array, across: Sum = alone, counted: jax.Array | None = None
    ) -> "RunningMoments":
        """`rows` `[B, …]`; those for which `counted` `[B, *counts]` is False are left out. The B
        rows that count have the weight B/n among all n."""
        counted = jnp.ones((len(rows), *self.count.shape), bool) if counted is None else counted
        leading = (1,) * (rows.ndim - counted.ndim)
        every = counted.reshape(counted.shape[:1] + leading + counted.shape[1:])
        size, sums = across((counted.sum(0, dtype=rows.dtype), jnp.where(every, rows, 0.0).sum(0)))
        rows_or_one = jnp.maximum(size, 1.0)  # where none counts, the weight is 0
        mean = sums / rows_or_one
        squares = jnp.where(every, (rows - mean[None]) ** 2, 0.0).sum(0)
        variance = across(squares) / rows_or_one
        count, count_rest = add(self.count, self.count_rest, size)
        merged = merged_moments(self, mean, variance, size / count)
        return RunningMoments(**merged, count=count, count_rest=count_rest)

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
    moments: RunningMoments  # [P] of `running`, over the agents of each part, all worlds and steps
    parts: tuple[tuple[int, ...], ...] = struct.field(pytree_node=False)  # P; they partition agents

    @classmethod
    def create(cls, num_envs: int, parts: tuple[tuple[int, ...], ...]) -> "RewardScale":
        agents, counts = sum(map(len, parts)), (len(parts),)
        return cls(jnp.zeros((num_envs, agents)), RunningMoments.create(counts, counts), parts)

    def update(
        self,
        reward: jax.Array,
        active: jax.Array,
        terminated: jax.Array,
        gamma: jax.Array | float,
        across: Sum = alone,
    ) -> "RewardScale":
        """The sums of agents that did not act are left out of the moments."""
        running = jnp.where(terminated, 0.0, self.running * gamma) + reward
        rows = jnp.broadcast_to(running.reshape(-1, 1), (running.size, len(self.parts)))
        counted = (active[..., None] & self._members()[None]).reshape(rows.shape)
        return self.replace(running=running, moments=self.moments.update(rows, across, counted))

    def normalise(self, reward: jax.Array, eps: float = 1e-8, clip: float = 10.0) -> jax.Array:
        scale = jnp.sqrt(self.moments.variance + eps)[self._members().argmax(1)]
        return jnp.clip(reward / scale[None], -clip, clip)

    def _members(self) -> np.ndarray:
        """`[N, P]` bool."""
        agents = np.arange(self.running.shape[-1])
        return np.stack([np.isin(agents, part) for part in self.parts], axis=1)


class Normalisers(NamedTuple):
    """What stands between the worlds and the learner; None: nothing."""

    obs: RunningMoments | None = None  # [N, O], merged over the worlds at every step
    state: RunningMoments | None = None  # [S] likewise, where a critic reads it
    reward: RewardScale | None = None

    def seen(self, obs: jax.Array) -> jax.Array:
        """[…, N, O] as the policy sees them."""
        return obs if self.obs is None else self.obs.normalise(obs)

    def seen_state(self, state: jax.Array) -> jax.Array:
        """[…, S] as the critic sees it."""
        return state if self.state is None else self.state.normalise(state)

    def paid(self, reward: jax.Array) -> jax.Array:
        """[E, N] as the learner counts them."""
        return reward if self.reward is None else self.reward.normalise(reward)

    def observe(
        self, obs: jax.Array, state: jax.Array, active: jax.Array, across: Sum = alone
    ) -> "Normalisers":
        """The observations of agents that are not `active` are left out."""
        obs_moments, state_moments = self.obs, self.state
        if obs_moments is not None:
            obs_moments = obs_moments.update(obs, across, active[..., None])
        if state_moments is not None:
            state_moments = state_moments.update(state, across)
        return self._replace(obs=obs_moments, state=state_moments)

    def reward_observed(
        self,
        reward: jax.Array,
        active: jax.Array,
        terminated: jax.Array,
        gamma: jax.Array | float,
        across: Sum = alone,
    ) -> "Normalisers":
        if self.reward is None:
            return self
        paid = self.reward.update(reward, active, terminated, gamma, across)
        return self._replace(reward=paid)

    def finite_or(self, before: "Normalisers") -> "Normalisers":
        """These, or what was known before if they have taken in a number that is not finite."""
        obs, state, reward = self
        if obs is not None:
            obs = select(all_finite(obs), obs, before.obs)
        if state is not None:
            state = select(all_finite(state), state, before.state)
        if reward is not None and before.reward is not None:
            old, running = before.reward, reward.running
            reward = reward.replace(
                running=jnp.where(jnp.isfinite(running), running, old.running),
                moments=select(all_finite(reward.moments), reward.moments, old.moments),
            )
        return Normalisers(obs, state, reward)

    def inherit(self, other: "Normalisers") -> "Normalisers":
        """The statistics of `other`, with the sums of rewards that run in one's own worlds."""
        if self.reward is None or other.reward is None:
            return other
        return other._replace(reward=other.reward.replace(running=self.reward.running))


UNCHANGED = Normalisers()
