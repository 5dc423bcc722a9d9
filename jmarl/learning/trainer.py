"""One train step, composed: all players act, then each one's learner learns. Pure; `jit` is the
caller's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jmarl.envs.base import Env
from jmarl.learning.acting import init_memory, raw_view
from jmarl.learning.base import Learner
from jmarl.learning.collectives import Layout
from jmarl.learning.episode_returns import EpisodeReturns, mean_returns
from jmarl.learning.finite import all_finite, select
from jmarl.learning.losses import value_mask
from jmarl.learning.recovery import restart_broken
from jmarl.learning.rollout import learn_moments, rollout
from jmarl.learning.running_statistics import InputMoments
from jmarl.policies.base import Player, pick, team_places
from jmarl.types import ROUND, Metrics, Params, PolicyState, TimeStep, TrainState, Trajectory

T = TypeVar("T")


@dataclass(frozen=True)
class Trainer:
    """The static side of a run: worlds, players and their learners, shapes. Hyperparameters are
    traced."""

    env: Env
    players: tuple[Player, ...]  # they partition the agents
    learners: tuple[Learner[Any, Any], ...]  # one per player
    num_envs: int
    rollout_length: int
    total_updates: int
    skip_nonfinite: bool  # undo updates that are not finite
    layout: Layout = field(default_factory=Layout)  # with shards, `step` is one shard's

    def init(self, key: jax.Array) -> TrainState:
        param_key, env_key, key = jax.random.split(key, 3)
        count = len(self.players)
        keys = jax.random.split(param_key, 2 * count)  # of policies, then of learners
        params = [self.players[i].policy.init(keys[i]) for i in range(count)]
        env_state, timestep = self.env.reset(env_key, self.num_envs)
        return TrainState(
            policies=self._policies(params, timestep),
            learners=tuple(
                self.learners[i].init(keys[count + i], params[i], self.num_envs)
                for i in range(count)
            ),
            memory=init_memory(self.players, self.num_envs),
            env=env_state,
            timestep=timestep,
            episode_return=jnp.zeros_like(timestep.reward),
            key=key,
            update=jnp.zeros((), jnp.int32),
            rounds=jnp.zeros((), jnp.int32),
        )

    @property
    def shapes(self) -> TrainState:
        """Shapes of the state, without computing one."""
        return jax.eval_shape(self.init, jax.random.key(0))

    def _policies(self, params: Sequence[Params], timestep: TimeStep) -> tuple[PolicyState, ...]:
        """Observation statistics have learned from the first time step."""
        nothing = tuple(
            InputMoments.create(raw_view(self.env.spec, p, timestep), p.policy.reads_state)
            if p.normalise_obs
            else None
            for p in self.players
        )
        known = learn_moments(self.env.spec, self.players, nothing, timestep, Layout())
        if self.skip_nonfinite:
            known = tuple(
                select(all_finite(new), new, old) for new, old in zip(known, nothing, strict=True)
            )
        return tuple(map(PolicyState, params, known))

    def step(self, state: TrainState, hyper: Sequence[Any]) -> tuple[TrainState, Metrics]:
        """One update: `rollout_length` steps of all worlds, then every learner learns, with its
        hyperparameters `hyper[i]`. With several shards (an axis named `data`) each plays its own
        worlds; all learn the same."""
        key, play_key, value_key, learn_key = jax.random.split(state.key, 4)
        after, played, returns = rollout(
            self.env,
            self.players,
            state,
            (play_key, value_key),
            self.rollout_length,
            [learner.sequence_length for learner in self.learners],
            self.layout,
            self.skip_nonfinite,
        )
        progress = (state.rounds * float(ROUND) + state.update) / float(self.total_updates)
        policies, learners, metrics = [], [], self._played_metrics(played, returns)
        for i, player in enumerate(self.players):
            player_key = jax.random.fold_in(learn_key, i)
            known = (after.policies[i], state.policies[i], state.learners[i])
            policy, learner, own = self._learn(i, *known, played[i], player_key, hyper[i], progress)
            policies.append(policy)
            learners.append(learner)
            metrics |= _named(own, player.name, single=len(self.players) == 1)
        after = after.replace(
            policies=tuple(policies),
            learners=tuple(learners),
            key=key,
            update=(state.update + 1) % ROUND,
            rounds=state.rounds + (state.update + 1) // ROUND,
        )
        if self.skip_nonfinite:
            after_key, restart_key = jax.random.split(key)
            worlds = self.layout.world_numbers(len(state.timestep.reward))
            after = restart_broken(self.env, after.replace(key=after_key), restart_key, worlds)
        return after, metrics

    def _learn(
        self,
        i: int,
        policy: PolicyState,
        before: PolicyState,
        state: Any,
        played: Trajectory,
        key: jax.Array,
        hyper: Any,
        progress: jax.Array,
    ) -> tuple[PolicyState, Any, Metrics]:
        """Player i's policy and learner after an update, or as they were `before` the rollout if
        anything in them is not finite."""
        given = (played, key, hyper, progress, self.layout)
        params, learned, metrics = self.learners[i].learn(policy.params, state, *given)
        policy = PolicyState(params, policy.obs_stats)
        if not self.skip_nonfinite:
            return policy, learned, metrics
        good = all_finite((policy, learned))
        policy = select(good, policy, before)
        learned = select(good, learned, state)
        return policy, learned, metrics | {"losses/skipped": 1.0 - good}

    def step_alike(self, state: TrainState, hyper: Any) -> tuple[TrainState, Metrics]:
        """`step` with the same hyperparameters for every learner."""
        return self.step(state, (hyper,) * len(self.players))

    def _played_metrics(self, played: Sequence[Trajectory], returns: EpisodeReturns) -> Metrics:
        """Mean rewards, returns and numbers of worlds of a rollout. All shards meet once for
        them."""
        rewards = returns.info_totals(self.rollout_length)
        for player, own in zip(self.players, played, strict=True):
            totals = self._reward_totals(player, own)
            rewards |= _named(totals, player.name, single=len(self.players) == 1)
        rewards, ended = self.layout.sum((rewards, returns.totals()))
        means = {name: total / jnp.maximum(n, 1.0) for name, (n, total) in rewards.items()}
        return means | mean_returns(self.env.spec, *ended)

    def _reward_totals(
        self, player: Player, played: Trajectory
    ) -> dict[str, tuple[jax.Array, jax.Array]]:
        """How many rewards the player's agents in play had, and their sum. If the agents are of
        opposing teams, of each team."""
        mask = value_mask(played)
        own = team_places(self.env.spec.teams, player.agents)
        totals = {}
        for name, places in own.items():
            counted = mask[..., pick(places)]
            key = "train/reward" if len(own) == 1 else f"train/reward/{name}"
            totals[key] = counted.sum(), (played.reward[..., pick(places)] * counted).sum()
        return totals


def _named(metrics: dict[str, T], player: str, single: bool) -> dict[str, T]:
    """`losses/policy_loss`, or `losses/policy_loss/adversary` with several players. Names under
    `charts/` are about the whole run and stay as they are."""
    if single:
        return metrics
    return {
        name if name.startswith("charts/") else f"{name}/{player}": value
        for name, value in metrics.items()
    }
