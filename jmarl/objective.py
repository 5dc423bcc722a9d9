"""The PPO objective of all algorithms here, put together from the equations in `losses`."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jmarl import losses
from jmarl.choices import AdvantageNorm, Components, Ratio, Reduction, ValueLoss, ValueScaling
from jmarl.losses import Counts
from jmarl.normalize import ValueNorm, popart_rescale
from jmarl.policies import Policy
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
    advantage_eps: float = 1e-5
    advantage_ddof: int = 0

    def prepare(
        self, policy: Policy, params: Any, value_norm: ValueNorm, batch: Batch
    ) -> tuple[Any, ValueNorm, Batch]:
        """What a minibatch has to be looked at whole for. Before each gradient the value statistics
        learn of its targets; PopArt also rewrites the value head so that its predictions, in the
        rewards' units, stay. Advantages may be normalised over it."""
        if self.advantage_norm == "minibatch":
            batch = batch._replace(advantage=self.normalised(batch))
        if self.value_norm == "none":
            return params, value_norm, batch
        updated = value_norm.update(batch.target)
        if self.value_norm == "popart":
            params = popart_rescale(params, policy.value_head, value_norm, updated)
        return params, updated, batch

    def loss(
        self,
        policy: Policy,
        hyper: Hyper,
        params: Any,
        value_norm: ValueNorm,
        batch: Batch,
        counts: Counts,
    ) -> tuple[jax.Array, Metrics]:
        """L_π - c_H·H + c_V·L_V, and its terms as metrics. Of a part of a minibatch, with the
        `counts` of the whole, it is that part's share."""
        now = policy.evaluate(params, batch.context, batch.perception, batch.action)
        policy_loss, ratio_metrics = self._policy_loss(now.log_prob, batch, counts, hyper)
        value_loss = self._value_loss(now.value, batch, counts, value_norm, hyper)
        entropy = now.entropy.sum(-1) if self.entropy == "sum" else now.entropy.mean(-1)
        entropy = losses.entropy_bonus(entropy, batch.active, counts, self.agent_reduction)
        total = policy_loss - hyper.entropy_coef * entropy + hyper.value_coef * value_loss
        metrics = {
            "losses/total_loss": total,
            "losses/policy_loss": policy_loss,
            "losses/value_loss": value_loss,
            "losses/entropy": entropy,
        }
        return total, metrics | ratio_metrics

    def normalised(self, batch: Batch) -> jax.Array:
        """The batch's advantages, normalised over it."""
        return losses.normalise_advantage(
            batch.advantage, batch.active, self.advantage_eps, self.advantage_ddof
        )

    def _policy_loss(
        self, log_prob: jax.Array, batch: Batch, counts: Counts, hyper: Hyper
    ) -> tuple[jax.Array, Metrics]:
        log_ratio = log_prob - batch.log_prob  # […, N, K]
        if self.ratio == "joint":
            log_ratio = log_ratio.sum(-1, keepdims=True)
        ratio = jnp.exp(log_ratio)
        advantage = batch.advantage[..., None]
        surrogate = losses.clipped_surrogate(ratio, advantage, hyper.clip_eps).sum(-1)
        joint = log_ratio.sum(-1)
        diagnostics = {
            "losses/ratio": ratio.mean(-1),
            "losses/approx_kl": losses.approx_kl(joint),
            "losses/old_approx_kl": losses.old_approx_kl(joint),
            "losses/clipfrac": losses.clip_fraction(ratio, hyper.clip_eps).mean(-1),
        }
        metrics = {
            name: losses.masked_mean(x, batch.active, counts) for name, x in diagnostics.items()
        }
        return losses.reduce_agents(surrogate, batch.active, counts, self.agent_reduction), metrics

    def _value_loss(
        self,
        value: jax.Array,
        batch: Batch,
        counts: Counts,
        value_norm: ValueNorm,
        hyper: Hyper,
    ) -> jax.Array:
        target, before = batch.target, batch.value
        if self.value_norm != "none":
            target = value_norm.normalise(target)
        if self.value_norm == "popart":  # ValueNorm's old predictions keep the units of their time
            before = value_norm.normalise(before)
        loss = self._error(target - value, hyper)
        if self.clip_value:
            clipped = losses.clip_value(value, before, hyper.value_clip_eps)
            loss = losses.clipped_value_loss(loss, self._error(target - clipped, hyper))
        return losses.masked_mean(loss, batch.active, counts)

    def _error(self, error: jax.Array, hyper: Hyper) -> jax.Array:
        if self.value_loss == "huber":
            return losses.huber(error, hyper.huber_delta)
        return losses.squared(error, self.squared_factor)
