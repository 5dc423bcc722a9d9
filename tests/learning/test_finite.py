"""`--on-nonfinite skip`: after one bad number the next clean update is learned from."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import matrix
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.envs.base import Env
from jmarl.kernels.gru import gru_states
from jmarl.learning.finite import all_finite, finite_or_zero
from jmarl.learning.running_statistics import RewardScale
from jmarl.learning.vmapped import VmappedTrainer

E = 4
CHOSEN = {
    "algorithm": "rmappo",
    "actions": "continuous",
    "num_envs": E,
    "total_updates": 10,
    "on_nonfinite": "skip",
    "ppo": matrix.TINY["ppo"] | {"normalise_obs": True, "normalise_reward": True},
}


@dataclass(frozen=True)
class Faulty:
    """A world that shows or pays NaN to agent 0 of world 1 after one step: the first one that has
    `flaw` in its state."""

    env: Env

    @property
    def spec(self):
        return self.env.spec

    def reset(self, key, num_envs):
        state, timestep = self.env.reset(key, num_envs)
        return (state, jnp.zeros(2, bool)), timestep

    def step(self, key, state, action):
        (inner, flaw), nan = state, jnp.nan
        inner, seen = self.env.step(key, inner, action)
        obs = jnp.where(flaw[0], seen.obs.at[1, 0].set(nan), seen.obs)
        reward = jnp.where(flaw[1], seen.reward.at[1, 0].set(nan), seen.reward)
        return (inner, jnp.zeros(2, bool)), seen._replace(obs=obs, reward=reward)


@pytest.fixture(scope="module")
def run():
    trainer, hyper = make_trainer(build(matrix.TINY | CHOSEN))
    trainer = replace(trainer, env=Faulty(trainer.env))
    step = jax.jit(trainer.step_alike)
    state, _ = step(jax.jit(trainer.init)(jax.random.key(0)), hyper)
    return hyper, step, state


def again(state):
    return state.replace(key=jax.random.clone(state.key))


def flawed(state, obs=False, reward=False):
    return state.replace(env=(state.env[0], jnp.array([obs, reward])))


def with_nan(tree: Any):
    """NaN in world 1."""
    return jax.tree.map(lambda x: x.at[1].set(jnp.nan), tree)


def same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def with_bad_world(state):
    """A particle that is nowhere. Episodes are longer than a rollout."""
    particles, flaw = state.env
    world = particles.world
    world = world.replace(pos=world.pos.at[..., 1].set(jnp.nan))
    return state.replace(env=(particles.replace(world=world), flaw))


FAULTS = {
    "a bad observation": lambda state: flawed(state, obs=True),
    "a bad reward": lambda state: flawed(state, reward=True),
    "a bad view to begin with": lambda state: state.replace(
        timestep=state.timestep._replace(obs=with_nan(state.timestep.obs))
    ),
    "a bad memory": lambda state: state.replace(memory=with_nan(state.memory)),
    "a bad world": with_bad_world,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_next_clean_update_is_taken(run, fault):
    hyper, step, state = run
    bad, metrics = step(FAULTS[fault](again(state)), hyper)
    assert metrics["losses/skipped"] == 1
    learned = ("policies", "learners")  # statistics included
    assert all(same(getattr(bad, name), getattr(state, name)) for name in learned)
    assert all_finite((bad.memory, bad.timestep.obs, bad.env))
    rewards = np.asarray(bad.episode_return)
    assert np.isfinite(rewards[[0, 2, 3]]).all()
    if fault == "a bad world":  # it has begun again
        assert not rewards[1].any()
    elif fault == "a bad reward":  # until the episode ends, its return is not known
        assert np.isnan(rewards[1, 0])
    clean, metrics = step(bad, hyper)
    assert metrics["losses/skipped"] == 0
    assert np.isnan(metrics.pop("train/episode_return"))  # no episode has ended
    assert all(np.isfinite(value) for value in metrics.values())
    assert not same(clean.policies[0].params, state.policies[0].params)
    counts = [s.policies[0].obs_stats.obs.count for s in (clean, bad)]
    assert (counts[0] > counts[1]).all()
    assert not same(clean.learners[0].reward_scale, bad.learners[0].reward_scale)


def test_a_step_that_overflows_is_undone(run):
    """Loss and gradient are finite before it; an infinite rate makes the parameters so."""
    hyper, step, state = run
    after, metrics = step(again(state), hyper._replace(lr=jnp.inf))
    assert np.isfinite(metrics["losses/grad_norm"])
    assert np.isfinite(metrics["losses/total_loss"])
    assert metrics["losses/skipped"] == 1
    assert same(after.policies, state.policies)
    assert step(after, hyper)[1]["losses/skipped"] == 0


@pytest.mark.usefixtures("unwatched")
def test_members_side_by_side_may_skip():
    """Shapes only. The step of the episodes stays one number, which all members share."""
    trainer, hyper = make_trainer(build(matrix.TINY | CHOSEN))
    vmapped = VmappedTrainer(trainer)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 2))
    states = jax.eval_shape(vmapped.init, keys)
    after, _ = jax.eval_shape(vmapped.step_alike, states, hyper)
    assert after.env.step.shape == ()
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, states)


def test_a_gru_forgets_nan_where_an_episode_begins():
    """Forwards and backwards: the gradient of what follows does not see it."""
    rng = np.random.default_rng(0)
    told, kernel = rng.normal(size=(3, 2, 12)), rng.normal(size=(4, 12))
    start, kept = rng.normal(size=(2, 4)), np.ones((3, 2))
    start[1], kept[0, 1] = np.nan, 0.0

    def total(kernel, start):
        return gru_states(*map(jnp.asarray, (told, kept, start)), kernel, jnp.zeros(12)).sum()

    clean = np.where(np.isnan(start), 7.0, start)
    value, grads = jax.value_and_grad(total, (0, 1))(jnp.asarray(kernel), jnp.asarray(start))
    expected, others = jax.value_and_grad(total, (0, 1))(jnp.asarray(kernel), jnp.asarray(clean))
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    for ours, theirs in zip(grads, others, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_true_end_clears_a_sum_that_is_not_finite():
    scale = RewardScale.create(2, ((0,),)).replace(running=jnp.array([[jnp.nan], [4.0]]))
    active = jnp.ones((2, 1), bool)
    ended = scale.update(jnp.ones((2, 1)), active, jnp.array([[True], [False]]), 0.5)
    np.testing.assert_array_equal(ended.running, [[1.0], [3.0]])


def test_only_floats_are_looked_at():
    assert all_finite({"a": jnp.ones(3), "n": jnp.arange(2)})
    assert all_finite(jnp.arange(2))
    assert not all_finite({"a": jnp.ones(3), "b": jnp.array([[0.0, -jnp.inf]])})
    given = {"x": jnp.array([1.0, jnp.nan, jnp.inf]), "n": jnp.arange(2)}
    cleaned = finite_or_zero(given)
    np.testing.assert_array_equal(cleaned["x"], [1, 0, 0])
    np.testing.assert_array_equal(cleaned["n"], [0, 1])
