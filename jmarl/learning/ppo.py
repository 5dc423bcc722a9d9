"""PPO as a learner: advantages, then epochs of minibatches. MAT, MAPPO, IPPO and PPO differ only in
its policy and options."""

from dataclasses import dataclass
from functools import partial

import jax
import optax
from flax import struct
from jax import lax

from jmarl.learning import losses
from jmarl.learning.base import Learned
from jmarl.learning.collectives import Layout
from jmarl.learning.losses import MinibatchStats
from jmarl.learning.minibatches import Batch, minibatches, sequences
from jmarl.learning.ppo_loss import HyperParams, Objective
from jmarl.learning.returns import gae, monte_carlo
from jmarl.learning.running_statistics import RewardScale, ValueNorm
from jmarl.learning.update import (
    LearnerState,
    MinibatchStep,
    gradient_step,
    learning_rate,
    run_epochs,
)
from jmarl.literals import Returns, Schedule, Shuffle, TimeLimit
from jmarl.policies.base import Policy
from jmarl.types import Metrics, Params, Trajectory

# What continuous PPO's reference logs of an update's last minibatch; all else it averages.
OF_LAST_MINIBATCH = (
    *("losses/total_loss", "losses/policy_loss", "losses/value_loss", "losses/entropy"),
    *("losses/approx_kl", "losses/old_approx_kl"),
)


class PpoState(struct.PyTreeNode):
    """What PPO carries from update to update, besides the parameters."""

    opt_state: optax.OptState
    value_norm: ValueNorm
    reward_scale: RewardScale | None  # None: rewards are not normalised


@dataclass(frozen=True)
class Ppo:
    """The static side of PPO. An own objective or an auxiliary loss overrides `loss`; a term that
    is added there divides by counts of the whole minibatch, as its terms do."""

    policy: Policy
    objective: Objective
    optimiser: optax.GradientTransformation  # without its learning rate, which is traced
    epochs: int
    num_minibatches: int
    shuffle: Shuffle
    sequence_length: int | None  # of a recurrent policy; None: the rollout
    returns: Returns
    time_limit: TimeLimit
    lr_schedule: Schedule
    lr_end_factor: float
    clip_apart: bool  # actor's and critic's gradients are clipped separately
    stop_on_kl: bool
    log_last_minibatch: bool  # its losses, not their means over all minibatches
    # agents whose rewards have one scale, as indices into the player's; None: no normalisation
    reward_parts: tuple[tuple[int, ...], ...] | None

    def init(self, key: jax.Array, params: Params, num_envs: int) -> PpoState:
        del key
        parts = self.reward_parts
        return PpoState(
            opt_state=self.optimiser.init(params),
            value_norm=ValueNorm.create(),
            reward_scale=None if parts is None else RewardScale.create(num_envs, parts),
        )

    def learn(
        self,
        params: Params,
        state: PpoState,
        played: Trajectory,
        key: jax.Array,
        hyper: HyperParams,
        progress: jax.Array,
        layout: Layout,
    ) -> Learned:
        lr = learning_rate(hyper.lr, self.lr_schedule, progress, self.lr_end_factor)
        reward, scale = self.scaled_reward(state.reward_scale, played, hyper, layout)
        batch, known = self.batch(state.value_norm, played._replace(reward=reward), hyper, layout)
        before = LearnerState(params, state.opt_state, state.value_norm)
        after, metrics = self.fit(before, batch, key, hyper, lr, layout)
        metrics = known | metrics | {"charts/learning_rate": lr}
        return Learned(after.params, PpoState(after.opt_state, after.value_norm, scale), metrics)

    def fit(
        self,
        before: LearnerState,
        batch: Batch,
        key: jax.Array,
        hyper: HyperParams,
        lr: jax.Array | float,
        layout: Layout,
    ) -> tuple[LearnerState, Metrics]:
        """Epochs of minibatches over a batch."""
        step: MinibatchStep = partial(
            gradient_step,
            prepare=partial(self.objective.prepare, self.policy),
            loss_fn=partial(self.loss, hyper),
            optimiser=self.optimiser,
            lr=lr,
            critic_part=self.policy.critic_part,
            critic_lr_factor=hyper.critic_lr_factor,
            max_grad_norm=hyper.max_grad_norm,
            clip_apart=self.clip_apart,
            reduce=layout.sum,
        )
        return self.run_epochs(before, batch, key, step, self.epochs, self.kl_limit(hyper), layout)

    def run_epochs(
        self,
        before: LearnerState,
        batch: Batch,
        key: jax.Array,
        step: MinibatchStep,
        epochs: int,
        target_kl: jax.Array | float | None,
        layout: Layout,
    ) -> tuple[LearnerState, Metrics]:
        """So many epochs of any step."""
        count, recurrent = self.num_minibatches, self.policy.recurrent
        stats = partial(self.objective.minibatch_stats, reduce=layout.sum)
        epoch = minibatches(batch, count, self.shuffle, recurrent, stats, layout)
        of_last = OF_LAST_MINIBATCH if self.log_last_minibatch else ()
        return run_epochs(before, epoch, key, step, epochs, count, target_kl, of_last)

    def kl_limit(self, hyper: HyperParams) -> jax.Array | float | None:
        """The KL at which epochs stop; None: they never do."""
        return hyper.target_kl if self.stop_on_kl else None

    def loss(
        self,
        hyper: HyperParams,
        params: Params,
        value_norm: ValueNorm,
        batch: Batch,
        stats: MinibatchStats,
    ) -> tuple[jax.Array, Metrics]:
        """Of a microbatch, with the statistics of its whole minibatch."""
        return self.objective.loss(self.policy, hyper, params, value_norm, batch, stats)

    def scaled_reward(
        self, scale: RewardScale | None, played: Trajectory, hyper: HyperParams, layout: Layout
    ) -> tuple[jax.Array, RewardScale | None]:
        """`[T, E, n]`: rewards in running units; each step's scale has learned from it."""
        if scale is None:
            return played.reward, None

        def step(known: RewardScale, now: tuple[jax.Array, ...]) -> tuple[RewardScale, jax.Array]:
            reward, active, terminated = now
            scale = known.update(reward, active > 0, terminated, hyper.gamma, layout.sum)
            return scale, scale.normalise(reward)

        steps = (played.reward, played.active, played.terminated)
        scale, reward = lax.scan(step, scale, steps)
        return reward, scale

    def batch(
        self, value_norm: ValueNorm, played: Trajectory, hyper: HyperParams, layout: Layout
    ) -> tuple[Batch, Metrics]:
        """Advantages and returns in the rewards' own units, from values as they were predicted."""
        value, ahead = played.output.value, played.next_value
        known = value
        if self.objective.value_norm != "none":
            known, ahead = value_norm.denormalise(value), value_norm.denormalise(ahead)
        ends = (played.terminated, played.truncated)
        if self.returns == "gae":
            advantage, target = gae(
                played.reward, known, ahead, *ends, hyper.gamma, hyper.gae_lambda, self.time_limit
            )
        else:
            target = monte_carlo(played.reward, known, ahead, *ends, hyper.gamma, self.time_limit)
            advantage = target - known
        batch = Batch(
            seen=played.seen,
            start=played.starts,
            context=played.output.context,
            action=played.output.action,
            log_prob=played.output.log_prob,
            value=known if self.objective.value_norm == "popart" else value,
            advantage=advantage,
            target=target,
            active=played.active,
            valued=played.valued,
        )
        counted = self.objective.target_mask(batch)
        given = [(target, counted), (target - known, counted), (advantage, played.active)]
        of_target, of_error, of_advantage = losses.moments(given, layout.sum)
        if self.objective.advantage_norm == "batch":
            batch = batch._replace(advantage=self.objective.standardised(advantage, of_advantage))
        explained = losses.explained_variance(of_target, of_error)
        if self.policy.recurrent:
            length = self.sequence_length or len(played.reward)
            batch = sequences(batch, length)
        return batch, {"losses/explained_variance": explained}
