"""Playing, step by step: what is recorded is what the worlds gave, in running units if so asked."""

import copy
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.wrappers.utils import RunningMeanStd

import jmarl
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.envs.base import Team
from jmarl.learning.acting import raw_view, world_keys
from jmarl.learning.collectives import Layout
from jmarl.learning.episode_returns import EpisodeReturns, mean_returns
from jmarl.learning.rollout import rollout
from jmarl.policies.base import Player

T, E, GAMMA = 12, 3, 0.9


@pytest.fixture(scope="module")
def played():
    """A rollout over the ends of episodes, and the same actions played again in bare worlds."""
    chosen = {
        "algorithm": "ppo",
        "env_options": {"max_steps_in_episode": 5},
        "num_envs": E,
        "rollout_length": T,
        "ppo": {"gamma": GAMMA, "num_minibatches": 1},
    }
    trainer, hyper = make_trainer(build(chosen))
    env, key, worlds = trainer.env, jax.random.key(1), jnp.arange(E)
    state = jax.jit(trainer.init)(jax.random.key(0))
    state = state.replace(episode_return=jnp.array([[-7.0], [jnp.nan], [2.0]]))
    after, (transitions,), returns = jax.jit(
        lambda s, k: rollout(env, trainer.players, s, (k, jax.random.key(2)), T, [None], Layout())
    )(state, key)
    step, env_state, bare = jax.jit(env.step), state.env, [state.timestep]
    step_key = jax.random.split(jax.random.clone(key), 3)[1]
    for t, now in enumerate(jax.random.split(step_key, T)):
        action = transitions.output.action[t]
        env_state, timestep = step(world_keys(now, worlds), env_state, action)
        bare.append(timestep)
    return trainer, hyper, state, after, transitions, bare, returns


def test_returns_are_of_the_episodes_that_ended(played):
    """After 5 and 10 of 12 steps. The rollout began in episodes with rewards of -7, of 2, and with
    rewards that are not known."""
    trainer, *_, after, _, bare, returns = played
    rewards = np.stack([np.asarray(now.reward[:, 0], np.float64) for now in bare[1:]])
    first, second = rewards[:5].sum(0), rewards[5:10].sum(0)
    ended = [first[0] - 7, first[2] + 2, *second]
    told = mean_returns(trainer.env.spec, *returns.totals())
    np.testing.assert_allclose(told["train/episode_return"], np.mean(ended), rtol=1e-5)
    np.testing.assert_allclose(after.episode_return[:, 0], rewards[10:].sum(0), rtol=1e-5)


def test_opposing_teams_have_returns_of_their_own():
    """Two worlds of three agents; the second world's episode ends after the second step."""
    spec = SimpleNamespace(cooperative=False, teams=(Team("fox", (0, 2)), Team("hen", (1,))))
    rewards = jnp.array([[[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], [[0.5] * 3, [0.25] * 3]])
    returns = EpisodeReturns.at_start(jnp.zeros((2, 3)))
    for reward, over in zip(rewards, jnp.array([[False, False], [False, True]]), strict=True):
        returns = returns.after(SimpleNamespace(reward=reward, over=over, info=None))
        if not over.any():
            assert np.isnan(list(mean_returns(spec, *returns.totals()).values())).all()
    told = mean_returns(spec, *returns.totals())
    assert told == {"train/episode_return/fox": 40.5, "train/episode_return/hen": 16.25}
    np.testing.assert_array_equal(returns.running, [[1.5, 2.5, 4.5], [0.0, 0.0, 0.0]])


def test_observations_are_seen_in_units_of_all_that_came_before(played):
    """One set of statistics for all worlds, told of every observation before it is used."""
    _, _, _, after, transitions, bare, _ = played
    moments = RunningMeanStd(shape=(3,))
    for t in range(T):
        obs = np.asarray(bare[t].obs[:, 0], np.float64)
        moments.update(obs)
        expected = ((obs - moments.mean) / np.sqrt(moments.var + 1e-8)).clip(-10, 10)
        np.testing.assert_allclose(transitions.seen.obs[t, :, 0], expected, atol=1e-4)
    moments.update(np.asarray(bare[T].obs[:, 0]))
    np.testing.assert_allclose(after.policies[0].obs_stats.obs.mean[0], moments.mean, rtol=1e-4)
    np.testing.assert_allclose(after.policies[0].obs_stats.obs.variance[0], moments.var, rtol=1e-4)


def test_rewards_are_scaled_by_their_sum_under_the_trainers_discount(played):
    """Truncated episodes run on: no row is left out, no sum is cut."""
    trainer, hyper, state, _, transitions, bare, _ = played
    known = state.learners[0].reward_scale
    scaled, scale = jax.jit(trainer.learners[0].scaled_reward, static_argnums=3)(
        known, transitions, hyper, Layout()
    )
    moments, total = RunningMeanStd(shape=()), np.zeros(E)
    for t in range(T):
        reward = np.asarray(bare[t + 1].reward[:, 0], np.float64)
        total = total * GAMMA + reward
        moments.update(total)
        np.testing.assert_allclose(transitions.reward[t, :, 0], reward, rtol=1e-5)
        expected = (reward / np.sqrt(moments.var + 1e-8)).clip(-10, 10)
        np.testing.assert_allclose(scaled[t, :, 0], expected, rtol=1e-4)
    np.testing.assert_allclose(scale.running[:, 0], total, rtol=1e-5)


def test_worlds_begin_anew_without_a_row_in_between(played):
    """Where an episode is cut, its last view is valued, not the first of the next."""
    trainer, _, state, _, transitions, bare, _ = played
    policy, moments = trainer.players[0].policy, RunningMeanStd(shape=(3,))
    value = jax.jit(
        lambda seen: policy.value(state.policies[0].params, None, policy.memory(E), seen)
    )
    cuts = [4, 9]
    np.testing.assert_array_equal(np.argwhere(transitions.truncated.all(1))[:, 0], cuts)
    np.testing.assert_array_equal(np.argwhere(transitions.truncated.any(1))[:, 0], cuts)
    assert not transitions.terminated.any()
    for t in range(max(cuts) + 1):
        moments.update(np.asarray(bare[t].obs[:, 0], np.float64))
        if t in cuts:
            known = copy.deepcopy(moments)  # also of the next episodes' first observations
            known.update(np.asarray(bare[t + 1].obs[:, 0], np.float64))
            last = np.asarray(bare[t + 1].final_obs)
            seen = ((last - known.mean) / np.sqrt(known.var + 1e-8)).clip(-10, 10)
            assert np.abs(last - bare[t + 1].obs).max() > 0.1
            view = jax.tree.map(lambda x, t=t: x[t], transitions.seen)
            expected = value(view._replace(obs=jnp.asarray(seen, jnp.float32)))
            np.testing.assert_allclose(transitions.next_value[t], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "looked_at"),
    [
        ("mpe/simple_spread", False),
        ("mpe/simple_speaker_listener", True),  # three words, or five moves
        ("jaxmarl/HeuristicEnemySMAX", True),  # the dead can do nothing
    ],
)
def test_masks_are_looked_at_only_where_something_is_illegal(name, looked_at, foreign):
    env = jmarl.make(name)
    _, timestep = jax.eval_shape(lambda key: env.reset(key, E), jax.random.key(0))
    player = Player("all", tuple(range(env.spec.num_agents)), None, "team_mean", "own")
    seen = jax.eval_shape(lambda t: raw_view(env.spec, player, t), timestep)
    assert (seen.action_mask is not None) == looked_at
    assert timestep.action_mask.shape == (E, env.spec.num_agents, env.spec.action_space.size)
