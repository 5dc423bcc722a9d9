"""The PPO objective of all algorithms here, composed of the equations in `losses`."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jmarl.kernels.short_reductions import short_sum
from jmarl.learning import losses
from jmarl.learning.collectives import Sum, local_sum
from jmarl.learning.losses import Counts, MinibatchStats, Moments, value_mask
from jmarl.learning.minibatches import Batch
from jmarl.learning.running_statistics import ValueNorm, popart_rescale
from jmarl.literals import (
    AdvantageEntries,
    AdvantageNorm,
    Components,
    Ratio,
    Reduction,
    ValueLoss,
    ValueScaling,
)
from jmarl.policies.base import Policy
from jmarl.types import Metrics, Params, Scalar


class HyperParams(NamedTuple):
    """PPO's traced hyperparameters, the options with that mark: a sweep over them is one compiled
    program."""

    lr: Scalar
    gamma: Scalar
    gae_lambda: Scalar
    clip_eps: Scalar
    value_clip_eps: Scalar
    value_coef: Scalar
    entropy_coef: Scalar
    max_grad_norm: Scalar
    critic_lr_factor: Scalar  # where the critic is a network of its own
    huber_delta: Scalar
    target_kl: Scalar  # ≤ 0: epochs are never cut short


@dataclass(frozen=True)
class Objective:
    """Which form of each term; every form is some reference's."""

    ratio: Ratio  # one per head or dimension, or one of the whole action
    entropy: Components  # over components
    value_loss: ValueLoss
    squared_factor: float
    clip_value: bool
    value_norm: ValueScaling
    agent_reduction: Reduction
    advantage_norm: AdvantageNorm
    advantage_entries: AdvantageEntries  # that count in a minibatch's moments
    advantage_eps: float
    advantage_ddof: int
    inactive_targets: bool  # value statistics learn from agents that are out, too

    def minibatch_stats(self, batch: Batch, reduce: Sum = local_sum) -> MinibatchStats:
        """Of a minibatch, of which every shard has a part."""
        mask, target = batch.active, batch.target
        given = [(batch.advantage, mask), (target, self.target_mask(batch))]
        of_advantage, of_target = losses.moments(given, reduce)
        entries = reduce(jnp.asarray(float(target.size), target.dtype))
        valued = of_advantage.size if self.inactive_targets else of_target.size
        return MinibatchStats(
            counts=Counts(of_advantage.size, entries / mask.shape[-1], entries, valued),
            advantage=self._advantage_moments(batch, of_advantage, reduce),
            target_mean=of_target.mean,
            target_variance=of_target.variance(),
        )

    def target_mask(self, batch: Batch) -> jax.Array:
        """1 where targets count in statistics."""
        return jnp.ones_like(batch.target) if self.inactive_targets else value_mask(batch)

    def _advantage_moments(self, batch: Batch, active: Moments, reduce: Sum) -> Moments | None:
        """By which a minibatch's advantages are normalised, if they are."""
        if self.advantage_norm != "minibatch":
            return None
        if self.advantage_entries == "active":
            return active
        everything = jnp.ones_like(batch.advantage)
        return losses.moments([(batch.advantage, everything)], reduce)[0]

    def standardised(self, advantage: jax.Array, known: Moments) -> jax.Array:
        return losses.standardised(advantage, known, self.advantage_eps, self.advantage_ddof)

    def prepare(
        self, policy: Policy, params: Params, value_norm: ValueNorm, minibatch_stats: MinibatchStats
    ) -> tuple[Params, ValueNorm]:
        """Before each gradient the value statistics learn from the minibatch's targets; PopArt also
        rewrites the value head so that its predictions, in the rewards' units, stay the same."""
        if self.value_norm == "none":
            return params, value_norm
        updated = value_norm.update(minibatch_stats.target_mean, minibatch_stats.target_variance)
        if self.value_norm == "popart":
            params = popart_rescale(params, policy.value_head, value_norm, updated)
        return params, updated

    def loss(
        self,
        policy: Policy,
        hyper: HyperParams,
        params: Params,
        value_norm: ValueNorm,
        batch: Batch,
        minibatch_stats: MinibatchStats,
    ) -> tuple[jax.Array, Metrics]:
        """L_π - c_H·H + c_V·L_V, and its terms as metrics. Of a microbatch, with the statistics of
        its minibatch, it is the microbatch's share."""
        start = jax.tree.map(lambda x: x[0], batch.start)
        now = policy.evaluate(params, start, batch.context, batch.seen, batch.action)
        of_actor, metrics = self.actor_loss(
            hyper, now.log_prob, now.entropy, batch, minibatch_stats
        )
        value_loss = self.critic_loss(hyper, now.value, value_norm, batch, minibatch_stats)
        whole = of_actor + hyper.value_coef * value_loss
        values = {"losses/total_loss": whole, "losses/value_loss": value_loss}
        return whole, metrics | values

    def actor_loss(
        self,
        hyper: HyperParams,
        log_prob: jax.Array,
        entropy: jax.Array,
        batch: Batch,
        minibatch_stats: MinibatchStats,
    ) -> tuple[jax.Array, Metrics]:
        """L_π - c_H·H of log-probabilities and entropies `[…, n, K]`, and its terms."""
        active, advantage = as_rows(batch.active), as_rows(batch.advantage)
        if minibatch_stats.advantage is not None:
            advantage = self.standardised(advantage, minibatch_stats.advantage)
        log_ratio = components(log_prob - batch.log_prob)
        counts, entropy = minibatch_stats.counts, components(entropy)
        policy_loss, metrics = self._policy_loss(log_ratio, advantage, active, counts, hyper)
        entropy = short_sum(entropy) / (1 if self.entropy == "sum" else len(entropy))
        entropy = losses.entropy_bonus(entropy, active, counts, self.agent_reduction)
        terms = {"losses/policy_loss": policy_loss, "losses/entropy": entropy}
        return policy_loss - hyper.entropy_coef * entropy, metrics | terms

    def critic_loss(
        self,
        hyper: HyperParams,
        value: jax.Array,
        value_norm: ValueNorm,
        batch: Batch,
        minibatch_stats: MinibatchStats,
    ) -> jax.Array:
        """L_V of values `[…, n]`."""
        now, before, target = (as_rows(x) for x in (value, batch.value, batch.target))
        error = self._value_loss(now, before, target, value_norm, hyper)
        counts = minibatch_stats.counts
        valued = as_rows(value_mask(batch))
        return losses.masked_mean(error, valued, counts._replace(active=counts.valued))

    def _policy_loss(
        self,
        log_ratio: jax.Array,
        advantage: jax.Array,
        active: jax.Array,
        counts: Counts,
        hyper: HyperParams,
    ) -> tuple[jax.Array, Metrics]:
        """`log_ratio`: `[K, R]`, the others `[R]`."""
        joint = short_sum(log_ratio)
        if self.ratio == "joint":
            log_ratio = joint[None]
        ratio = jnp.exp(log_ratio)
        surrogate = short_sum(losses.clipped_surrogate(ratio, advantage[None], hyper.clip_eps))
        diagnostics = {
            "losses/ratio": short_sum(ratio) / len(ratio),
            "losses/approx_kl": losses.approx_kl(joint),
            "losses/old_approx_kl": losses.old_approx_kl(joint),
            "losses/clipfrac": short_sum(losses.clip_fraction(ratio, hyper.clip_eps)) / len(ratio),
        }
        metrics = {name: losses.masked_mean(x, active, counts) for name, x in diagnostics.items()}
        return losses.reduce_agents(surrogate, active, counts, self.agent_reduction), metrics

    def _value_loss(
        self,
        value: jax.Array,
        before: jax.Array,
        target: jax.Array,
        value_norm: ValueNorm,
        hyper: HyperParams,
    ) -> jax.Array:
        """[R]"""
        if self.value_norm != "none":
            target = value_norm.normalise(target)
        if self.value_norm == "popart":  # ValueNorm's old predictions keep the units of their time
            before = value_norm.normalise(before)
        loss = self._error(target - value, hyper)
        if not self.clip_value:
            return loss
        clipped = losses.clip_value(value, before, hyper.value_clip_eps)
        return losses.clipped_value_loss(loss, self._error(target - clipped, hyper))

    def _error(self, error: jax.Array, hyper: HyperParams) -> jax.Array:
        if self.value_loss == "huber":
            return losses.huber(error, hyper.huber_delta)
        return losses.squared(error, self.squared_factor)


# XLA for CPUs vectorises over long vectors, but hardly over three agents.


def as_rows(x: jax.Array) -> jax.Array:
    """Numbers of agents `[…, N]` as `[R]`."""
    return x.reshape(-1)


def components(x: jax.Array) -> jax.Array:
    """`[…, N, K]` as `[K, R]`."""
    return jnp.moveaxis(x, -1, 0).reshape(x.shape[-1], -1)
