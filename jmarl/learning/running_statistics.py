"""Running statistics: of value targets (ValueNorm, PopArt), of observations and of rewards."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jmarl.learning.collectives import Sum, local_sum
from jmarl.types import Params, PolicyInput, Scalar

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

    mean: Float[Array, ""]
    variance: Float[Array, ""]  # without its floor
    mean_rest: Float[Array, ""]  # rounding errors, see `add`
    variance_rest: Float[Array, ""]
    updates: Int[Array, ""]  # int32, at most MANY_UPDATES

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
        average_and_rest = _rounded(average)
        variance_and_rest = _rounded(float(square) / scale - average**2)
        return cls(
            mean=average_and_rest[0],
            variance=variance_and_rest[0],
            mean_rest=average_and_rest[1],
            variance_rest=variance_and_rest[1],
            updates=jnp.asarray(round(updates), jnp.int32),
        )

    def sums(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The references' running_mean, running_mean_sq and debiasing_term."""
        debias = _debiasing_term(self.updates)
        return debias * self.mean, debias * (self.variance + self.mean**2), debias

    def update(self, mean: jax.Array, variance: jax.Array) -> "ValueNorm":
        """`mean` and `variance` are of all of a minibatch's targets. The n-th minibatch has the
        weight (1-β)/(1-βⁿ)."""
        chex.assert_rank([mean, variance], 0)
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


def _rounded(x: float) -> tuple[jax.Array, jax.Array]:
    """A number in the precision of arrays, and the rounding error."""
    rounded = jnp.asarray(x)
    return rounded, jnp.asarray(x - float(rounded))


def _debiasing_term(updates: jax.Array) -> jax.Array:
    """1 - βⁿ, without cancellation."""
    return -jnp.expm1(updates * math.log(BETA))


def popart_rescale(params: Params, head: tuple[str, ...], old: ValueNorm, new: ValueNorm) -> Params:
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
        self, rows: jax.Array, reduce: Sum = local_sum, counted: jax.Array | None = None
    ) -> "RunningMoments":
        """`rows` `[B, …]`; those for which `counted` `[B, *counts]` is False are left out. The B
        rows that count have the weight B/n among all n."""
        chex.assert_shape(rows, (None, *self.mean.shape))
        counted = jnp.ones((len(rows), *self.count.shape), bool) if counted is None else counted
        leading = (1,) * (rows.ndim - counted.ndim)
        every = counted.reshape(counted.shape[:1] + leading + counted.shape[1:])
        size, sums = reduce((counted.sum(0, dtype=rows.dtype), jnp.where(every, rows, 0.0).sum(0)))
        rows_or_one = jnp.maximum(size, 1.0)  # where none counts, the weight is 0
        mean = sums / rows_or_one
        squares = jnp.where(every, (rows - mean[None]) ** 2, 0.0).sum(0)
        variance = reduce(squares) / rows_or_one
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
        reward: Float[Array, "E N"],
        active: Bool[Array, "E N"],
        terminated: Bool[Array, "E N"],
        gamma: Scalar,
        reduce: Sum = local_sum,
    ) -> "RewardScale":
        """The sums of agents that did not act are left out of the moments."""
        running = jnp.where(terminated, 0.0, self.running * gamma) + reward
        rows = jnp.broadcast_to(running.reshape(-1, 1), (running.size, len(self.parts)))
        counted = (active[..., None] & self._members()[None]).reshape(rows.shape)
        return self.replace(running=running, moments=self.moments.update(rows, reduce, counted))

    def normalise(
        self, reward: Float[Array, "E N"], eps: float = 1e-8, clip: float = 10.0
    ) -> Float[Array, "E N"]:
        scale = jnp.sqrt(self.moments.variance + eps)[self._members().argmax(1)]
        return jnp.clip(reward / scale[None], -clip, clip)

    def _members(self) -> np.ndarray:
        """`[N, P]` bool."""
        agents = np.arange(self.running.shape[-1])
        return np.stack([np.isin(agents, part) for part in self.parts], axis=1)


class InputMoments(struct.PyTreeNode):
    """Moments of what a player's policy reads, over all worlds and steps: of each agent's
    observations, of the team's where the critic reads more than the player's own, and of the state
    where the critic reads it."""

    obs: RunningMoments  # [n, O]
    team_obs: RunningMoments | None  # [M, O]
    state: RunningMoments | None  # [S]

    @classmethod
    def create(cls, seen: PolicyInput, reads_state: bool) -> "InputMoments":
        """For inputs of these shapes."""

        def by_agent(obs: jax.Array) -> RunningMoments:
            return RunningMoments.create(obs.shape[-2:], counts=(obs.shape[-2], 1))

        return cls(
            obs=by_agent(seen.obs),
            team_obs=None if seen.team_obs is None else by_agent(seen.team_obs),
            state=RunningMoments.create(seen.state.shape[-1:]) if reads_state else None,
        )

    def update(
        self,
        seen: PolicyInput,
        active: jax.Array,
        team_active: jax.Array | None = None,
        reduce: Sum = local_sum,
    ) -> "InputMoments":
        """`seen` `[E, …]`; the observations of agents that are not `active` `[E, n]` are left
        out."""
        team_obs, state = self.team_obs, self.state
        if team_obs is not None and team_active is not None and seen.team_obs is not None:
            team_obs = team_obs.update(seen.team_obs, reduce, team_active[..., None])
        if state is not None:
            state = state.update(seen.state, reduce)
        obs = self.obs.update(seen.obs, reduce, active[..., None])
        return InputMoments(obs, team_obs, state)

    def normalise(self, seen: PolicyInput) -> PolicyInput:
        """`seen` with any leading axes, in running units."""
        team_obs, state = seen.team_obs, seen.state
        if self.team_obs is not None and team_obs is not None:
            team_obs = self.team_obs.normalise(team_obs)
        if self.state is not None:
            state = self.state.normalise(state)
        return seen._replace(obs=self.obs.normalise(seen.obs), team_obs=team_obs, state=state)
