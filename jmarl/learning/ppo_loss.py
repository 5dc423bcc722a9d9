"""The PPO objective of all algorithms here, put together from the equations in `losses`."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jmarl.kernels.short_reductions import total
from jmarl.learning import losses
from jmarl.learning.collectives import Sum, alone
from jmarl.learning.losses import Counts, Facts, Moments
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
from jmarl.types import Batch, Metrics


class Hyper(struct.PyTreeNode):
    """Hyperparameters that are traced: a sweep over them is one compiled program."""

    lr: jax.Array | float = 5e-4
    gamma: jax.Array | float = 0.99
    gae_lambda: jax.Array | float = 0.95
    clip_eps: jax.Array | float = 0.2
    value_clip_eps: jax.Array | float = 0.2
    value_coef: jax.Array | float = 1.0
    entropy_coef: jax.Array | float = 0.01
    max_grad_norm: jax.Array | float = 10.0
    critic_lr_factor: jax.Array | float = 1.0  # where the critic is a net of its own
    huber_delta: jax.Array | float = 10.0
    target_kl: jax.Array | float = 0.0  # ≤ 0: epochs are never cut short


@dataclass(frozen=True)
class Objective:
    """Which form of each term; every form is some reference's."""

    ratio: Ratio = "component"  # one per head or dimension, or one of the whole action
    entropy: Components = "sum"  # over components
    value_loss: ValueLoss = "huber"
    squared_factor: float = 0.5
    clip_value: bool = True
    value_norm: ValueScaling = "valuenorm"
    agent_reduction: Reduction = "mean"
    advantage_norm: AdvantageNorm = "batch"
    advantage_entries: AdvantageEntries = "active"  # that count in a minibatch's moments
    advantage_eps: float = 1e-5
    advantage_ddof: int = 0
    inactive_targets: bool = False  # value statistics learn of agents that are out, too

    def facts(self, batch: Batch, across: Sum = alone) -> Facts:
        """Of a minibatch, of which every shard has a part."""
        mask, target = batch.active, batch.target
        given = [(batch.advantage, mask), (target, self.target_mask(batch))]
        of_advantage, of_target = losses.moments(given, across)
        entries = across(jnp.asarray(float(target.size), target.dtype))
        valued = of_advantage.size if self.inactive_targets else of_target.size
        return Facts(
            counts=Counts(of_advantage.size, entries / mask.shape[-1], entries, valued),
            advantage=self._advantage_moments(batch, of_advantage, across),
            target_mean=of_target.mean,
            target_variance=of_target.variance(),
        )

    def target_mask(self, batch: Batch) -> jax.Array:
        """1 where targets count in statistics."""
        return jnp.ones_like(batch.target) if self.inactive_targets else value_mask(batch)

    def _advantage_moments(self, batch: Batch, active: Moments, across: Sum) -> Moments | None:
        """By which a minibatch's advantages are normalised, if they are."""
        if self.advantage_norm != "minibatch":
            return None
        if self.advantage_entries == "active":
            return active
        everything = jnp.ones_like(batch.advantage)
        return losses.moments([(batch.advantage, everything)], across)[0]

    def standardised(self, advantage: jax.Array, known: Moments) -> jax.Array:
        return losses.standardised(advantage, known, self.advantage_eps, self.advantage_ddof)

    def prepare(
        self, policy: Policy, params: Any, value_norm: ValueNorm, facts: Facts
    ) -> tuple[Any, ValueNorm]:
        """Before each gradient the value statistics learn of the minibatch's targets; PopArt also
        rewrites the value head so that its predictions, in the rewards' units, stay."""
        if self.value_norm == "none":
            return params, value_norm
        updated = value_norm.update(facts.target_mean, facts.target_variance)
        if self.value_norm == "popart":
            params = popart_rescale(params, policy.value_head, value_norm, updated)
        return params, updated

    def loss(
        self,
        policy: Policy,
        hyper: Hyper,
        params: Any,
        value_norm: ValueNorm,
        batch: Batch,
        facts: Facts,
    ) -> tuple[jax.Array, Metrics]:
        """L_π - c_H·H + c_V·L_V, and its terms as metrics. Of a part of a minibatch, with the
        `facts` of the whole, it is that part's share."""
        now = policy.evaluate(params, batch.context, batch.perception, batch.action)
        active, advantage = flat(batch.active), flat(batch.advantage)
        if facts.advantage is not None:
            advantage = self.standardised(advantage, facts.advantage)
        log_ratio = components(now.log_prob - batch.log_prob)
        counts, entropy = facts.counts, components(now.entropy)
        policy_loss, ratio_metrics = self._policy_loss(log_ratio, advantage, active, counts, hyper)
        value, before, target = (flat(x) for x in (now.value, batch.value, batch.target))
        value_loss = self._value_loss(value, before, target, value_norm, hyper)
        learned_of = flat(value_mask(batch))
        value_loss = losses.masked_mean(
            value_loss, learned_of, counts._replace(active=counts.valued)
        )
        entropy = total(entropy) / (1 if self.entropy == "sum" else len(entropy))
        entropy = losses.entropy_bonus(entropy, active, counts, self.agent_reduction)
        whole = policy_loss - hyper.entropy_coef * entropy + hyper.value_coef * value_loss
        metrics = {
            "losses/total_loss": whole,
            "losses/policy_loss": policy_loss,
            "losses/value_loss": value_loss,
            "losses/entropy": entropy,
        }
        return whole, metrics | ratio_metrics

    def _policy_loss(
        self,
        log_ratio: jax.Array,
        advantage: jax.Array,
        active: jax.Array,
        counts: Counts,
        hyper: Hyper,
    ) -> tuple[jax.Array, Metrics]:
        """`log_ratio`: `[K, R]`, the others `[R]`."""
        joint = total(log_ratio)
        if self.ratio == "joint":
            log_ratio = joint[None]
        ratio = jnp.exp(log_ratio)
        surrogate = total(losses.clipped_surrogate(ratio, advantage[None], hyper.clip_eps))
        diagnostics = {
            "losses/ratio": total(ratio) / len(ratio),
            "losses/approx_kl": losses.approx_kl(joint),
            "losses/old_approx_kl": losses.old_approx_kl(joint),
            "losses/clipfrac": total(losses.clip_fraction(ratio, hyper.clip_eps)) / len(ratio),
        }
        metrics = {name: losses.masked_mean(x, active, counts) for name, x in diagnostics.items()}
        return losses.reduce_agents(surrogate, active, counts, self.agent_reduction), metrics

    def _value_loss(
        self,
        value: jax.Array,
        before: jax.Array,
        target: jax.Array,
        value_norm: ValueNorm,
        hyper: Hyper,
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

    def _error(self, error: jax.Array, hyper: Hyper) -> jax.Array:
        if self.value_loss == "huber":
            return losses.huber(error, hyper.huber_delta)
        return losses.squared(error, self.squared_factor)


def value_mask(batch: Batch) -> jax.Array:
    """1 where the value loss counts."""
    return batch.active if batch.valued is None else batch.valued


# XLA for CPUs vectorises over long vectors, but hardly over three agents.


def flat(x: jax.Array) -> jax.Array:
    """Numbers of agents `[…, N]` as `[R]`."""
    return x.reshape(-1)


def components(x: jax.Array) -> jax.Array:
    """`[…, N, K]` as `[K, R]`."""
    return jnp.moveaxis(x, -1, 0).reshape(x.shape[-1], -1)
