"""HAPPO: PPO that updates agents one after the other. Kuba et al. 2022, algorithm 4.

Every agent has an actor of its own, and all have one critic. An agent learns from A·M: M is the
product of the probability ratios of the agents that were updated before it, so A·M is what its
actions are worth now that those agents behave differently.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jmarl.learning.collectives import Layout
from jmarl.learning.losses import MinibatchStats
from jmarl.learning.minibatches import Batch
from jmarl.learning.ppo import Ppo, PpoState
from jmarl.learning.ppo_loss import HyperParams
from jmarl.learning.update import (
    LearnerState,
    MinibatchStep,
    ValueStats,
    global_norm,
    gradient_step,
)
from jmarl.policies.own_actors import OwnActorsPolicy
from jmarl.types import Metrics, Params, Tree


@dataclass(frozen=True)
class Happo(Ppo):
    """Advantages, losses and minibatches are PPO's; actors and the critic have optimisers of their
    own. Advantages are normalised over the batch, if at all."""

    policy: OwnActorsPolicy
    fixed_order: bool  # the agents' own; else drawn for every update
    critic_epochs: int

    def init(self, key: jax.Array, params: Params, num_envs: int) -> PpoState:
        state = super().init(key, params, num_envs)
        actors = jax.vmap(self.optimiser.init)(params["actor"])
        critic = self.optimiser.init({"critic": params["critic"]})
        return state.replace(opt_state={"actor": actors, "critic": critic})

    def fit(
        self,
        before: LearnerState,
        batch: Batch,
        key: jax.Array,
        hyper: HyperParams,
        lr: jax.Array | float,
        layout: Layout,
    ) -> tuple[LearnerState, Metrics]:
        """All actors, one after the other, then the critic: each learns for all its epochs."""
        actors_key, critic_key = jax.random.split(key)
        actors, opt_states, of_actors = self.fit_actors(
            before, batch, actors_key, hyper, lr, layout
        )
        critic, of_critic = self.fit_critic(before, batch, critic_key, hyper, lr, layout)
        after = LearnerState(
            {"actor": actors, "critic": critic.params["critic"]},
            {"actor": opt_states, "critic": critic.opt_state},
            critic.value_norm,
        )
        return after, _joint_metrics(of_actors, of_critic, hyper)

    def fit_actors(
        self,
        before: LearnerState,
        batch: Batch,
        key: jax.Array,
        hyper: HyperParams,
        lr: jax.Array | float,
        layout: Layout,
    ) -> tuple[Params, Any, Metrics]:
        """Parameters and optimisers of all actors, `[n, …]`, and each turn's metrics, `[n]`."""
        order_key, key = jax.random.split(key)
        order = self.order(order_key)
        known = (before.params["actor"], cast(Any, before.opt_state)["actor"])

        def turn(
            log_factor: jax.Array, given: tuple[jax.Array, jax.Array]
        ) -> tuple[jax.Array, tuple[Params, Any, Metrics]]:
            agent, key = given
            params, opt_state = jax.tree.map(lambda x: x[agent], known)
            rows = agent_batch(batch, agent)
            learner = LearnerState(params, opt_state, ())
            given_others = rows._replace(advantage=rows.advantage * jnp.exp(log_factor))
            step = self.actor_step(agent, hyper, lr, layout)
            limits = self.epochs, self.kl_limit(hyper)
            after, metrics = self.run_epochs(learner, given_others, key, step, *limits, layout)
            log_factor = log_factor + self.log_ratio(after.params, rows, agent)
            return log_factor, (after.params, after.opt_state, metrics)

        nothing = jnp.zeros_like(batch.advantage[..., :1])
        keys = jax.random.split(key, len(order))
        _, by_turn = lax.scan(turn, nothing, (order, keys))
        params, opt_states, metrics = by_turn
        back = jnp.argsort(order)
        return *jax.tree.map(lambda x: x[back], (params, opt_states)), metrics

    def order(self, key: jax.Array) -> jax.Array:
        """`[n]`: the agent that is updated first, second, …"""
        count = self.policy.num_agents
        return jnp.arange(count) if self.fixed_order else jax.random.permutation(key, count)

    def actor_step(
        self, agent: jax.Array, hyper: HyperParams, lr: jax.Array | float, layout: Layout
    ) -> MinibatchStep:
        """A minibatch of one agent's actor; nothing else learns from it."""

        def loss(
            params: Params, value_stats: ValueStats, batch: Batch, stats: MinibatchStats
        ) -> tuple[jax.Array, Metrics]:
            del value_stats
            start = jax.tree.map(lambda x: x[0], batch.start)
            now = self.policy.evaluate_agent(params, start, batch.seen, batch.action, agent)
            return self.objective.actor_loss(hyper, *now, batch, stats)

        return partial(
            gradient_step,
            prepare=lambda params, value_stats, stats: (params, value_stats),
            loss_fn=loss,
            optimiser=self.optimiser,
            lr=lr,
            max_grad_norm=hyper.max_grad_norm,
            reduce=layout.sum,
        )

    def log_ratio(self, params: Params, rows: Batch, agent: jax.Array) -> Float[Array, "*rows 1"]:
        """log π_new(a|o) - log π_old(a|o) of one agent's whole actions; 0 where it did not act."""
        start = jax.tree.map(lambda x: x[0], rows.start)
        log_prob, _ = self.policy.evaluate_agent(params, start, rows.seen, rows.action, agent)
        return (log_prob - rows.log_prob).sum(-1) * rows.active

    def fit_critic(
        self,
        before: LearnerState,
        batch: Batch,
        key: jax.Array,
        hyper: HyperParams,
        lr: jax.Array | float,
        layout: Layout,
    ) -> tuple[LearnerState, Metrics]:
        """From the same targets, all agents' at once."""

        def loss(
            params: Params, value_norm: ValueStats, batch: Batch, stats: MinibatchStats
        ) -> tuple[jax.Array, Metrics]:
            start = jax.tree.map(lambda x: x[0], batch.start["critic"])
            value = self.policy.evaluate_critic(params["critic"], start, batch.seen)
            value_loss = self.objective.critic_loss(hyper, value, value_norm, batch, stats)
            return hyper.value_coef * value_loss, {"losses/value_loss": value_loss}

        step = partial(
            gradient_step,
            prepare=partial(self.objective.prepare, self.policy),
            loss_fn=loss,
            optimiser=self.optimiser,
            lr=lr * hyper.critic_lr_factor,
            max_grad_norm=hyper.max_grad_norm,
            reduce=layout.sum,
        )
        params, opt_states = {"critic": before.params["critic"]}, cast(Any, before.opt_state)
        learner = LearnerState(params, opt_states["critic"], before.value_norm)
        return self.run_epochs(learner, batch, key, step, self.critic_epochs, None, layout)


def agent_batch(batch: Batch, agent: jax.Array | int) -> Batch:
    """What one agent's actor learns from, with an agent axis of length 1."""

    def own(tree: Tree) -> Tree:
        return jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, agent, 1, axis=2), tree)

    seen = batch.seen._replace(
        obs=own(batch.seen.obs), action_mask=own(batch.seen.action_mask), team_obs=None
    )
    apart = {"seen": None, "start": None, "context": None}
    return own(batch._replace(**apart))._replace(seen=seen, start=own(batch.start["actor"]))


def _joint_metrics(actors: Metrics, critic: Metrics, hyper: HyperParams) -> Metrics:
    """Means over the actors, `[n]` each, beside the critic's."""
    metrics = {name: x.mean() for name, x in actors.items()}
    policy_loss, entropy = metrics["losses/policy_loss"], metrics["losses/entropy"]
    value_loss = critic["losses/value_loss"]
    norms = jnp.append(actors["losses/grad_norm"], critic["losses/grad_norm"])
    whole = policy_loss - hyper.entropy_coef * entropy + hyper.value_coef * value_loss
    return metrics | {
        "losses/total_loss": whole,
        "losses/value_loss": value_loss,
        "losses/grad_norm": global_norm(norms),
    }
