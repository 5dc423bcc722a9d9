"""Running statistics against torch and numpy."""

from typing import ClassVar

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jmarl.learning.running_statistics import (
    InputMoments,
    RewardScale,
    RunningMoments,
    ValueNorm,
    popart_rescale,
)
from jmarl.types import PolicyInput
from tests.support import torch_core

ONE_AGENT = ((0,),)


def test_value_norm_over_sequential_updates(x64):
    ours, theirs = ValueNorm.create(), torch_core.ValueNorm(dtype=torch.float64)
    rng = np.random.default_rng(0)
    for scale in (1.0, 50.0, 3.0):
        x = rng.normal(scale, scale, size=(40, 1))
        ours = ours.update(x.mean(), x.var())
        theirs.update(torch.tensor(x))
        for mine, other in [
            (ours.normalise(jnp.asarray(x)), theirs.normalize(torch.tensor(x))),
            (ours.denormalise(jnp.asarray(x)), theirs.denormalize(torch.tensor(x))),
        ]:
            np.testing.assert_allclose(mine, other, rtol=1e-10)


def test_values_are_a_tenth_before_the_first_update():
    np.testing.assert_allclose(ValueNorm.create().denormalise(jnp.array([5.0])), [0.5])


def test_one_update_in_single_precision_is_not_biased():
    """1 - β must not be rounded to float32 first: that would be 0.14 % off."""
    seen = ValueNorm.create().update(jnp.asarray(7.0), jnp.asarray(0.0))
    np.testing.assert_allclose(seen.sums()[2], 1e-5, rtol=1e-6)
    np.testing.assert_allclose(seen.moments()[0], 7.0, rtol=1e-6)


def test_variance_has_a_floor():
    seen = ValueNorm.create().update(jnp.ones(()), jnp.zeros(()))
    np.testing.assert_allclose(seen.moments()[1], 0.1, rtol=1e-5)


@pytest.mark.parametrize("updates", [0, 1, 30])
def test_value_norm_converts_to_and_from_the_references_sums(updates, x64):
    rng = np.random.default_rng(5)
    ours, theirs = ValueNorm.create(), torch_core.ValueNorm(dtype=torch.float64)

    def learn(ours, x):
        theirs.update(torch.tensor(x))
        return ours.update(x.mean(), x.var())

    def reference():
        return theirs.running_mean[0], theirs.running_mean_sq[0], theirs.debiasing_term

    for _ in range(updates):
        ours = learn(ours, rng.normal(-9, 2, size=(20, 1)))
    np.testing.assert_allclose(ours.sums(), reference(), rtol=1e-10)
    read = ValueNorm.from_sums(*map(float, reference()))
    assert read.updates == updates
    read = learn(read, rng.normal(40, 2, size=(20, 1)))
    np.testing.assert_allclose(read.sums(), reference(), rtol=1e-10)
    np.testing.assert_allclose(read.moments(), torch.cat(theirs.moments()), rtol=1e-10)


def test_sums_of_a_long_reference_run_are_read():
    """In float32 the references' debiasing term stops at about 0.997."""
    read = ValueNorm.from_sums(-99.7, 9995.0, 0.997)
    # mean -99.7/0.997 = -100; variance 9995/0.997 - 100² = 25.07…; n = ln 0.003/ln β = 580 912
    np.testing.assert_allclose(read.mean, -100.0, rtol=1e-6)
    np.testing.assert_allclose(read.variance, 25.0752, rtol=1e-4)
    np.testing.assert_allclose(read.updates, 580912, rtol=1e-4)
    assert ValueNorm.from_sums(1.0, 2.0, 1.0).updates > 10**6


LONG = 10**7


def targets(k):
    """The k-th minibatch's mean: ±5 about a level that drifts from -100 to -90."""
    drift = k * np.float32(10 / LONG)
    return drift - np.float32(100) + np.float32(5) * (2 * (k % 2) - 1)


def test_value_norm_keeps_its_precision_over_ten_million_minibatches():
    """Biased sums in float32 gave a deviation of 0.1 after a million."""

    @jax.jit
    def run():
        def step(k, norm):
            return norm.update(targets(k).astype(jnp.float32), jnp.ones(()))

        return jax.lax.fori_loop(0, LONG, step, ValueNorm.create())

    norm = run()
    x = targets(np.arange(LONG, dtype=np.float64))
    weight = 0.99999 ** np.arange(LONG)[::-1]
    mean = np.average(x, weights=weight)
    deviation = np.sqrt(1 + np.average((x - mean) ** 2, weights=weight))
    np.testing.assert_allclose(norm.moments(), [mean, deviation], rtol=1e-6)
    later = norm.replace(updates=jnp.asarray(2**30, jnp.int32)).update(mean, jnp.ones(()))
    assert later.updates == 2**30  # 10¹⁰ updates do not overflow
    np.testing.assert_allclose(later.moments(), [mean, deviation], rtol=1e-5)


def test_running_moments_keep_their_precision_over_ten_million_batches():
    """A count in float32 stops at 2²⁴ batches; the variance then grew without end. One that has
    counted 10¹⁰ rows still moves."""

    @jax.jit
    def run(moments):
        def step(k, moments):
            rows = jnp.stack([targets(k), targets(k) + 2]).astype(jnp.float32)
            return moments.update(rows)

        return jax.lax.fori_loop(0, LONG, step, moments)

    x = targets(np.arange(LONG, dtype=np.float64)) + 1  # the variance within a batch is 1
    moments = run(RunningMoments.create((), count=0.0))
    np.testing.assert_allclose(moments.count, 2 * LONG, rtol=1e-7)
    np.testing.assert_allclose(moments.mean, x.mean(), rtol=1e-6)
    np.testing.assert_allclose(moments.variance, x.var() + 1, rtol=1e-5)
    before = RunningMoments.create((), count=1e10).replace(variance=jnp.asarray(9.0))
    moments, weight = run(before), 2 * LONG / (1e10 + 2 * LONG)
    np.testing.assert_allclose(moments.mean, weight * x.mean(), rtol=1e-4)
    within, between = x.var() + 1, (1 - weight) * x.mean() ** 2
    expected = 9 + weight * (within + between - 9)
    np.testing.assert_allclose(moments.variance, expected, rtol=1e-4)


def test_popart_keeps_predictions_and_equals_torch(x64):
    rng = np.random.default_rng(1)
    weight, bias, features = rng.normal(size=(1, 4)), rng.normal(size=1), rng.normal(size=(6, 4))
    reference = torch_core.PopArt(torch.tensor(weight), torch.tensor(bias))
    head = {"kernel": jnp.asarray(weight.T), "bias": jnp.asarray(bias)}
    statistics = ValueNorm.create()

    def predict(head, statistics):
        return statistics.denormalise(jnp.asarray(features) @ head["kernel"] + head["bias"][None])

    for shift in (10.0, -300.0):
        x = rng.normal(shift, 20, size=(30, 1))
        before = predict(head, statistics)
        updated = statistics.update(x.mean(), x.var())
        head, statistics = popart_rescale(head, (), statistics, updated), updated
        np.testing.assert_allclose(predict(head, statistics), before, rtol=1e-10)
        reference.update(torch.tensor(x))
        np.testing.assert_allclose(head["kernel"].T, reference.weight, rtol=1e-10)
        np.testing.assert_allclose(head["bias"], reference.bias, rtol=1e-10)


def test_running_moments_equal_those_of_all_rows(x64):
    rng = np.random.default_rng(2)
    batches = [rng.normal(3, 5, size=(size, 4)) for size in (1, 7, 30)]
    moments = RunningMoments.create((4,), count=0.0)
    for batch in batches:
        moments = jax.jit(RunningMoments.update)(moments, jnp.asarray(batch))
    rows = np.concatenate(batches)
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-10)
    np.testing.assert_allclose(moments.variance, rows.var(0), rtol=1e-10)
    far = jnp.full((4,), 1e6)
    np.testing.assert_array_equal(moments.normalise(far), 10.0)


def test_running_moments_leave_out_rows_that_do_not_count(x64):
    """Each agent has a count of its own; who never counts stays as it began."""
    rng = np.random.default_rng(5)
    batches = [rng.normal(3, 5, size=(6, 3, 2)) for _ in range(4)]
    counted = rng.random((4, 6, 3)) < 0.6
    counted[..., 2] = counted[1] = False
    moments = RunningMoments.create((3, 2), (3, 1), count=0.0)
    moments = moments.replace(count=moments.count.at[2].set(1.0))
    for batch, active in zip(batches, counted, strict=True):
        rows = jnp.where(jnp.asarray(active)[..., None], batch, jnp.nan)
        moments = jax.jit(RunningMoments.update)(
            moments, rows, counted=jnp.asarray(active)[..., None]
        )
    for agent in range(2):
        rows = np.concatenate(batches)[np.concatenate(counted)[:, agent], agent]
        np.testing.assert_allclose(moments.mean[agent], rows.mean(0), rtol=1e-10)
        np.testing.assert_allclose(moments.variance[agent], rows.var(0), rtol=1e-10)
        assert moments.count[agent, 0] == len(rows)
    np.testing.assert_array_equal(moments.mean[2], 0.0)
    np.testing.assert_array_equal(moments.variance[2], 1.0)


def test_every_part_has_a_reward_scale_of_its_own(x64):
    """Agents 0 and 2 have one, agent 1, who is paid a thousand times as much, another. Steps at
    which an agent did not act are left out."""
    rng, worlds, gamma = np.random.default_rng(6), 5, 0.9
    scale = RewardScale.create(worlds, ((0, 2), (1,)))
    never = jnp.zeros((worlds, 3), bool)
    sums, seen = np.zeros((worlds, 3)), ([], [])
    for _ in range(4):
        reward, active = rng.normal(size=(worlds, 3)) * [1, 1000, 2], rng.random((worlds, 3)) < 0.7
        scale = scale.update(jnp.asarray(reward), jnp.asarray(active), never, gamma)
        sums = gamma * sums + reward
        seen[0].append(sums[:, [0, 2]][active[:, [0, 2]]])
        seen[1].append(sums[:, 1][active[:, 1]])
    first, second = (np.concatenate(part).std() for part in seen)
    expected = np.full((worlds, 3), 0.5) / [first, second, first]
    # gymnasium's count begins at 10⁻⁴ of a row with variance 1
    np.testing.assert_allclose(scale.normalise(jnp.full((worlds, 3), 0.5)), expected, rtol=1e-5)


class Recorded(gym.vector.VectorEnv):
    """Replays a stream. After an end gymnasium gives one row more, without reward: its way of
    resetting. Here all worlds end together, so that row can be left out for our side."""

    metadata: ClassVar = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}

    def __init__(self, obs, reward, terminated, truncated):
        self.rows, self.t = (obs, reward, terminated, truncated), 0
        self.num_envs = obs.shape[1]
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, obs.shape[2:], np.float64)
        self.observation_space = gym.vector.utils.batch_space(
            self.single_observation_space, self.num_envs
        )

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.rows[0][0], {}

    def step(self, actions):
        self.t += 1
        obs, reward, terminated, truncated = (column[self.t] for column in self.rows)
        return obs, reward, terminated, truncated, {}


def recorded_stream(rng, length=60, worlds=4):
    """Rows with gymnasium's extra one after each end; also which rows are real."""
    obs = rng.normal(2, 3, size=(length, worlds, 5))
    reward = rng.normal(1, 4, size=(length, worlds))
    terminated, truncated = np.zeros((2, length, worlds), bool)
    terminated[[7, 30]] = truncated[[15, 44]] = True
    real = np.ones(length, bool)
    real[[8, 31, 16, 45]] = False
    reward[~real] = 0
    return (obs, reward, terminated, truncated), real


def test_observations_and_rewards_are_normalised_as_by_gymnasium(x64):
    """Terminations and truncations included. The rewards' γ is the trainer's, not always 0.99."""
    (obs, reward, terminated, truncated), real = recorded_stream(np.random.default_rng(3))
    worlds, gamma = obs.shape[1], 0.9
    theirs = gym.wrappers.vector.NormalizeReward(
        Recorded(obs, reward, terminated, truncated), gamma=gamma
    )
    theirs.reset()
    scale = RewardScale.create(worlds, ONE_AGENT)
    active = jnp.ones((worlds, 1), bool)
    for t in range(1, len(obs)):
        _, expected, *_ = theirs.step(None)
        if real[t]:
            paid = jnp.asarray(reward[t])[:, None]
            scale = scale.update(paid, active, jnp.asarray(terminated[t])[:, None], gamma)
            # gymnasium sums in float32
            np.testing.assert_allclose(scale.normalise(paid)[:, 0], expected, rtol=1e-5)
    assert not truncated[:, 0][~real].any()

    theirs = gym.wrappers.vector.NormalizeObservation(Recorded(obs, reward, terminated, truncated))
    blank = PolicyInput(*[jnp.zeros((worlds, 1, 5)), jnp.zeros((worlds, 5)), None])
    moments = InputMoments.create(blank, reads_state=True)
    for t in range(len(obs)):
        expected = theirs.step(None)[0] if t else theirs.reset()[0]
        given = jnp.asarray(obs[t])
        seen = PolicyInput(given[:, None], given, None)
        moments = moments.update(seen, active)
        ours = moments.normalise(seen)
        np.testing.assert_allclose(ours.obs[:, 0], expected.clip(-10, 10), rtol=1e-5)
        np.testing.assert_allclose(ours.state, expected.clip(-10, 10), rtol=1e-5)


class RecordedAlone(gym.Env):
    """One world's rewards and ends."""

    def __init__(self, reward, terminated, truncated):
        self.rows, self.t = (reward, terminated, truncated), -1

    def step(self, action):
        self.t += 1
        reward, terminated, truncated = (column[self.t] for column in self.rows)
        return 0, reward, terminated, truncated, {}


def test_rewards_of_one_world_with_ends_at_random(x64):
    rng = np.random.default_rng(4)
    reward = rng.normal(1, 4, size=50)
    terminated, truncated = rng.random(size=(2, 50)) < 0.1
    theirs = gym.wrappers.NormalizeReward(RecordedAlone(reward, terminated, truncated), gamma=0.97)
    scale = RewardScale.create(1, ONE_AGENT)
    active = jnp.ones((1, 1), bool)
    for t in range(50):
        _, expected, *_ = theirs.step(None)
        paid = jnp.asarray(reward[t]).reshape(1, 1)
        scale = scale.update(paid, active, jnp.asarray(terminated[t]).reshape(1, 1), 0.97)
        np.testing.assert_allclose(scale.normalise(paid)[0, 0], np.clip(expected, -10, 10))
    assert terminated.any()
    assert truncated.any()


def test_rewards_far_out_are_cut():
    scale = RewardScale.create(2, ONE_AGENT)
    np.testing.assert_array_equal(scale.normalise(jnp.full((2, 1), 1e6)), 10.0)
