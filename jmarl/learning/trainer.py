"""One train step, composed: play, count advantages, learn. Pure; `jit` is the caller's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jmarl.envs.base import Env
from jmarl.learning import losses
from jmarl.learning.collectives import Sum, alone, together, world_numbers
from jmarl.learning.finite import all_finite, select
from jmarl.learning.losses import Facts
from jmarl.learning.microbatches import fewest_pieces
from jmarl.learning.ppo_loss import Hyper, Objective
from jmarl.learning.returns import gae, monte_carlo
from jmarl.learning.rollout import perceive, restart_broken, rollout, world_keys
from jmarl.learning.running_statistics import Normalisers, RewardScale, RunningMoments, ValueNorm
from jmarl.learning.update import (
    Epoch,
    Learner,
    blocks,
    chunks,
    gradient_step,
    in_blocks,
    in_rows,
    learn,
    scheduled,
)
from jmarl.literals import AgentEnd, Returns, RewardShare, Schedule, Shuffle, TimeLimit
from jmarl.policies.base import Group, Policy, group_view
from jmarl.types import ROUND, Batch, Metrics, State, TimeStep, Transition

SEQUENCES = 4  # times as many views at once: products are of one step of them


@dataclass(frozen=True)
class Trainer:
    """The static side of a run: worlds, policies, shapes, forms. Hyperparameters come traced."""

    env: Env
    groups: tuple[Group, ...]  # they partition the agents
    num_envs: int
    rollout_length: int
    total_updates: int
    epochs: int = 10
    num_minibatches: int = 1
    shuffle: Shuffle = "blocks"
    chunk_length: int | None = None  # of the sequences that are learned from; None: the rollout
    objective: Objective = field(default_factory=Objective)
    returns: Returns = "gae"
    time_limit: TimeLimit = "bootstrap"
    agent_end: AgentEnd = "own"
    share: RewardShare = "team_mean"
    lr_schedule: Schedule = "constant"
    lr_end_factor: float = 0.0
    clip_apart: bool = False  # a gradient clip each for actor and critic
    stop_on_kl: bool = False
    skip_nonfinite: bool = False  # an update that went wrong is undone
    normalise_obs: bool = False
    normalise_reward: bool = False
    shards: int = 1  # equal parts of the worlds; if several, `step` is one of them's
    piece_rows: int | None = None  # agents' views that are learned from at a time; None: all
    optimiser: optax.GradientTransformation = field(
        default_factory=lambda: optax.scale_by_adam(eps=1e-5)
    )

    def init(self, key: jax.Array) -> State:
        param_key, env_key, key = jax.random.split(key, 3)
        keys = jax.random.split(param_key, len(self.groups))
        params = tuple(group.policy.init(k) for group, k in zip(self.groups, keys, strict=True))
        env_state, timestep = self.env.reset(env_key, self.num_envs)
        return State(
            params=params,
            opt_state=tuple(self.optimiser.init(p) for p in params),
            value_norm=tuple(ValueNorm.create() for _ in params),
            memory=tuple(group.policy.memory(self.num_envs) for group in self.groups),
            env=env_state,
            timestep=timestep,
            normalisers=self._normalisers(timestep),
            key=key,
            update=jnp.zeros((), jnp.int32),
            rounds=jnp.zeros((), jnp.int32),
        )

    @property
    def shapes(self) -> State:
        """Of the state, without computing one."""
        return jax.eval_shape(self.init, jax.random.key(0))

    def _normalisers(self, timestep: TimeStep) -> Normalisers:
        """They have seen the first observations."""
        _, agents, size = timestep.obs.shape
        obs = state = reward = None
        if self.normalise_obs:
            obs = RunningMoments.create((agents, size), counts=(agents, 1))
            if any(group.policy.reads_state for group in self.groups):
                state = RunningMoments.create(timestep.state.shape[1:])
        if self.normalise_reward:
            reward = RewardScale.create(self.num_envs, self._paid_together)
        nothing = Normalisers(obs, state, reward)
        known = nothing.observe(timestep.obs, timestep.state, timestep.active)
        return known.finite_or(nothing) if self.skip_nonfinite else known

    @property
    def _paid_together(self) -> tuple[tuple[int, ...], ...]:
        """Agents whose rewards have one scale: those of one team that learn together."""
        shared = [
            tuple(agent for agent in group.agents if agent in team.agents)
            for group in self.groups
            for team in self.env.spec.teams
        ]
        return tuple(agents for agents in shared if agents)

    @property
    def across(self) -> Sum:
        return alone if self.shards == 1 else together

    def step(self, state: State, hyper: Hyper) -> tuple[State, Metrics]:
        """One update: `rollout_length` steps of all worlds, then `epochs` over them. Of several
        shards (an axis named `data`) each plays its own worlds; what was learned is the same."""
        key, play_key, value_key, learn_key = jax.random.split(state.key, 4)
        worlds = world_numbers(len(state.timestep.reward), self.shards)
        after, played = rollout(
            self.env,
            self.groups,
            state,
            play_key,
            worlds,
            self.rollout_length,
            self.share,
            hyper.gamma,
            self.across,
            self.agent_end,
            skip_nonfinite=self.skip_nonfinite,
        )
        done = state.rounds * float(ROUND) + state.update
        lr = scheduled(hyper.lr, self.lr_schedule, done, self.total_updates, self.lr_end_factor)
        learners, metrics = [], {"charts/learning_rate": lr}
        for i, (group, transitions) in enumerate(zip(self.groups, played, strict=True)):
            policy = group.policy
            seen = perceive(self.env.spec, after.timestep, after.normalisers)
            seen = group_view(self.env.spec, group, seen)
            last_key, group_key = (jax.random.fold_in(k, i) for k in (value_key, learn_key))
            last_keys = world_keys(last_key, worlds)
            last_value = policy.value(state.params[i], last_keys, after.memory[i], seen)
            batch, known = self._batch(transitions, last_value, state.value_norm[i], hyper)
            learner = Learner(state.params[i], state.opt_state[i], state.value_norm[i])
            before = learner
            learner, learned = self._learn(policy, learner, batch, group_key, hyper, lr)
            if self.skip_nonfinite:
                learner, learned = _unless_nonfinite(before, learner, learned)
            learners.append(learner)
            metrics |= _named(known | learned, group.name, alone=len(self.groups) == 1)
        params, opt_state, value_norm = zip(*learners, strict=True)
        after = after.replace(
            params=params,
            opt_state=opt_state,
            value_norm=value_norm,
            key=key,
            update=(state.update + 1) % ROUND,
            rounds=state.rounds + (state.update + 1) // ROUND,
        )
        if self.skip_nonfinite:
            after_key, restart_key = jax.random.split(key)
            after = restart_broken(self.env, after.replace(key=after_key), restart_key, worlds)
        return after, metrics

    def _batch(
        self, played: Transition, last_value: jax.Array, value_norm: ValueNorm, hyper: Hyper
    ) -> tuple[Batch, Metrics]:
        """Advantages and returns in the rewards' own units, from values as they were predicted."""
        value, decision = played.decision.value, played.decision
        following = jnp.concatenate([value[1:], last_value[None]])
        next_value = jnp.where(played.truncated[..., None], played.final_value, following)
        if self.objective.value_norm != "none":
            known, ahead = value_norm.denormalise(value), value_norm.denormalise(next_value)
        else:
            known, ahead = value, next_value
        ends = (played.terminated, played.truncated)
        if self.returns == "gae":
            advantage, target = gae(
                played.reward, known, ahead, *ends, hyper.gamma, hyper.gae_lambda, self.time_limit
            )
        else:
            target = monte_carlo(played.reward, known, ahead, *ends, hyper.gamma, self.time_limit)
            advantage = target - known
        batch = Batch(
            perception=played.perception,
            context=decision.context,
            action=decision.action,
            log_prob=decision.log_prob,
            value=known if self.objective.value_norm == "popart" else value,
            advantage=advantage,
            target=target,
            active=played.active,
            valued=played.valued,
        )
        counted = self.objective.target_mask(batch)
        whole = [(x, counted) for x in (played.paid, target, target - known)]
        known_of = losses.moments([*whole, (advantage, played.active)], self.across)
        of_paid, of_target, of_error, of_advantage = known_of
        metrics = {
            "train/reward": of_paid.mean,
            "losses/explained_variance": losses.explained_variance(of_target, of_error),
        }
        if self.objective.advantage_norm == "batch":
            batch = batch._replace(advantage=self.objective.standardised(advantage, of_advantage))
        return batch, metrics

    def _learn(
        self,
        policy: Policy,
        learner: Learner,
        batch: Batch,
        key: jax.Array,
        hyper: Hyper,
        lr: jax.Array,
    ) -> tuple[Learner, Metrics]:
        step: Callable[[Learner, Batch, Facts], Any] = partial(
            gradient_step,
            prepare=partial(self.objective.prepare, policy),
            loss_fn=partial(self.objective.loss, policy, hyper),
            optimiser=self.optimiser,
            lr=lr,
            critic_part=policy.critic_part,
            critic_lr_factor=hyper.critic_lr_factor,
            max_grad_norm=hyper.max_grad_norm,
            clip_apart=self.clip_apart,
            across=self.across,
        )
        minibatches = self._minibatches(policy, batch)
        target_kl = hyper.target_kl if self.stop_on_kl else None
        return learn(learner, minibatches, key, step, self.epochs, self.num_minibatches, target_kl)

    def _minibatches(self, policy: Policy, batch: Batch) -> Epoch:
        sequences = policy.recurrent
        if self.chunk_length is not None:
            batch = chunks(batch, self.chunk_length)
        if sequences:  # of what was remembered, only what was so at their starts
            batch = batch._replace(context=jax.tree.map(lambda x: x[:1], batch.context))
        facts = partial(self.objective.facts, across=self.across)
        count = self.num_minibatches
        _, worlds, agents = batch.active.shape
        views, limit = batch.active.size // count, self.piece_rows
        if sequences:
            limit = None if limit is None else SEQUENCES * limit
            pieces = fewest_pieces(worlds // count, views, limit)
        else:
            pieces = fewest_pieces(views // agents, views, limit)
        if self.shuffle == "rows":
            return in_rows(batch, facts, count, pieces, self.shards)
        laid = blocks(batch, count, pieces, sequences)
        return in_blocks(laid, facts, shuffled=self.shuffle == "blocks")


def _unless_nonfinite(before: Learner, after: Learner, metrics: Metrics) -> tuple[Learner, Metrics]:
    """What was learned, or what was known before if loss, gradient or anything learned is not
    finite; also whether that was so. The step itself can overflow after a finite gradient."""
    good = all_finite((metrics["losses/grad_norm"], metrics["losses/total_loss"], after))
    return select(good, after, before), metrics | {"losses/skipped": 1.0 - good}


def _named(metrics: Metrics, group: str, alone: bool) -> Metrics:
    """`losses/policy_loss`, or `losses/policy_loss/adversary` where groups learn apart."""
    return metrics if alone else {f"{name}/{group}": value for name, value in metrics.items()}
