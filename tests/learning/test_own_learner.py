"""A learner of one's own: REINFORCE, in as many lines as it takes, beside the library's."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.learning.base import Fixed, Learned
from jmarl.learning.episodes import play_episodes
from jmarl.learning.returns import monte_carlo


class Rates(NamedTuple):
    lr: Any
    gamma: Any


@dataclass(frozen=True)
class Reinforce:
    """∇ Σ log π(a|o)·(R - mean R). Williams 1992."""

    policy: Any
    sequence_length: int | None = None

    def init(self, key, params, num_envs):
        return ()

    def learn(self, params, state, played, key, hyper, progress, layout):
        nothing = jnp.zeros_like(played.reward)
        ends = (played.terminated, played.truncated)
        returns = monte_carlo(played.reward, nothing, nothing, *ends, hyper.gamma)
        start = jax.tree.map(lambda x: x[0], played.starts)
        weight = (returns - returns.mean()) * played.active

        def loss(params):
            seen, output = played.seen, played.output
            now = self.policy.evaluate(params, start, output.context, seen, output.action)
            return -(now.log_prob.sum(-1) * weight).mean()

        grads = layout.sum(jax.grad(loss)(params))
        params = jax.tree.map(lambda p, g: p - hyper.lr * g, params, grads)
        return Learned(params, state, {"losses/return": returns.mean()})


def made(env, **changes):
    values = {"algorithm": "ippo", "env": env, "num_envs": 64, "rollout_length": 4}
    config = build(values | {"net": {"hidden": [16]}, "ppo": {"num_minibatches": 1}} | changes)
    return make_trainer(config)


def train(trainer, hyper, updates):
    state = jax.jit(trainer.init)(jax.random.key(0))

    def step(state, _):
        return trainer.step(state, hyper)

    return jax.jit(lambda s: jax.lax.scan(step, s, length=updates))(state)


@pytest.mark.parametrize("env", ["probe/action", "probe/context"])
def test_reinforce_finds_the_paid_action(env):
    trainer, _ = made(env)
    own = replace(trainer, learners=(Reinforce(trainer.players[0].policy),))
    state, metrics = train(own, (Rates(lr=0.3, gamma=0.95),), 150)
    seen = jax.jit(
        lambda known: play_episodes(own.env, own.players, known, jax.random.key(1), 200)
    )(state.policies)
    np.testing.assert_allclose(seen.agent_return.mean(), 1.0, atol=0.02)
    assert set(metrics) == {"losses/return", "train/reward", "train/episode_return"}
    assert metrics["train/reward"][-1] > metrics["train/reward"][0] + 0.2


@pytest.mark.long
def test_teams_learn_by_different_learners_or_not_at_all():
    """In simple_tag predators learn by PPO; the prey learns by REINFORCE, or stays as it is."""
    trainer, hyper = made("mpe/simple_tag")
    predators, prey = trainer.learners[0], trainer.players[1].policy
    start = jax.jit(trainer.init)(jax.random.key(0))
    for learner, rates in ((Reinforce(prey), Rates(0.1, 0.9)), (Fixed(), None)):
        mixed = replace(trainer, learners=(predators, learner))
        state, metrics = train(mixed, (hyper, rates), 2)
        moved = [
            any(np.abs(a - b).max() > 0 for a, b in zip(*map(jax.tree.leaves, pair), strict=True))
            for pair in zip(state.policies, start.policies, strict=True)
        ]
        assert moved == [True, not isinstance(learner, Fixed)]
        assert f"losses/policy_loss/{trainer.players[0].name}" in metrics
        name = trainer.players[1].name
        assert f"train/reward/{name}" in metrics
        assert (f"losses/return/{name}" in metrics) == isinstance(learner, Reinforce)
