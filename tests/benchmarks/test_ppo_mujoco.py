"""The comparison of continuous PPO on worlds that Python steps; MuJoCo is not needed."""

import numpy as np
import pytest

from benchmarks import ppo, ppo_mujoco, report
from benchmarks.ppo_mujoco import Recorded, Trained
from benchmarks.torch_baseline.ppo import Returns
from jmarl.config.train_config import build
from jmarl.envs.adapters.gymnasium import AGENT

CASE = "Hopper-v5"


def test_a_recorded_world_notes_its_returns():
    returns, lengths = [], []
    world = Recorded("CartPole-v1", returns)
    for seed in range(2):
        world.reset(seed)
        lengths.append(1)
        while not world.step({AGENT: 0}).terminated[AGENT]:
            lengths[-1] += 1
    world.reset(2)
    world.step({AGENT: 0})  # of an episode that has not ended
    assert returns == lengths  # one for each step


def test_the_torch_trainer_notes_its_returns():
    returns = Returns(2)
    for reward, over in (([1, 5], [0, 0]), ([2, 6], [1, 0]), ([3, 7], [0, 1]), ([4, 8], [1, 0])):
        returns.add(np.array(reward, float), np.array(over, bool))
    assert returns.ended == [3.0, 18.0, 7.0]


def test_the_last_hundred_episodes_count():
    assert ppo_mujoco.last_mean([7.0] * 50 + [1.0] * 50 + [2.0] * 50) == 1.5
    assert np.isnan(ppo_mujoco.last_mean([]))


def test_intervals_of_means():
    """t = 2.776 with four degrees of freedom; s = √2.5."""
    mean, low, high = ppo_mujoco.mean_interval(np.arange(1.0, 6.0))
    assert (mean, high - mean) == pytest.approx((3, 2.776 * (2.5 / 5) ** 0.5), abs=1e-3)
    assert low == pytest.approx(6 - high)
    sample = np.arange(1.0, 6.0)
    assert ppo_mujoco.overlap(sample, sample + 3.9)
    assert not ppo_mujoco.overlap(sample, sample + 4.0)
    assert not ppo_mujoco.overlap(sample + 4.0, sample)
    assert ppo_mujoco.overlap(sample[:1], sample) is None


def run_of(seed, steps, subject="jmarl"):
    values = (steps, 10.0, 100.0 + seed, 200.0)
    pairs = zip(ppo_mujoco.METRICS, values, strict=True)
    return [report.Row(f"{CASE}/seed{seed}", subject, *pair) for pair in pairs]


def test_runs_of_another_length_and_totals_are_replaced():
    other = [report.Row("Pendulum-v1/seed0", "jmarl", "steps", 7.0)]
    total = [report.Row(CASE, "jmarl", "train_return", 3.0)]
    known = other + run_of(0, 4096) + total + run_of(1, 2048)
    assert ppo_mujoco.kept(known, CASE, 4096) == other + run_of(0, 4096)
    assert ppo_mujoco.kept(known, CASE, 0) == other


def test_the_subjects_take_turns_and_known_seeds_are_left_out():
    turns = [(0, "jmarl"), (0, "torch"), (1, "jmarl"), (1, "torch")]
    assert ppo_mujoco.missing([], CASE, 2) == turns
    assert ppo_mujoco.missing(run_of(0, 1) + run_of(1, 1, "torch"), CASE, 2) == turns[1:3]


def test_an_interrupted_comparison_keeps_its_seeds_and_goes_on(tmp_path, monkeypatch):
    path, done, broken = tmp_path / "x.json", [], [True]
    report.write(path, other := [report.Row("Pendulum-v1", "jmarl", "steps_per_s", 3.0)])

    def trainer(subject):
        def train(seed):
            if broken and (seed, subject) == (1, "torch"):
                raise KeyboardInterrupt
            done.append((seed, subject))
            return Trained(4096, 2.0, 100.0 * seed, 50.0)

        return lambda *_: train

    for subject in ppo_mujoco.SUBJECTS:
        monkeypatch.setattr(ppo_mujoco, f"{subject}_trainer", trainer(subject))
    given = (CASE, 5000, 2, False, ppo.torch_options, path)
    with pytest.raises(KeyboardInterrupt):
        ppo_mujoco.compare(*given)
    assert done == [(0, "jmarl"), (0, "torch"), (1, "jmarl")]
    broken.clear()
    with ppo_mujoco.console.capture() as shown:
        ppo_mujoco.compare(*given)
    assert done[3:] == [(1, "torch")]
    said = " ".join(shown.get().split())
    assert "the intervals of the last 100 episodes overlap" in said
    assert "2,383 ± 272" in said
    rows = report.stored(path)
    assert rows[: len(other)] == other
    means = [row.value for row in rows if (row.case, row.metric) == (CASE, "train_return")]
    assert means == [50.0, 50.0]


def tiny(case, steps=None):
    return build(
        {
            "algorithm": "ppo",
            "env": f"gymnasium/{case}",
            "num_envs": 1,
            "rollout_length": 256,
            "total_steps": 512,
            "eval_episodes": 2,
            "net": {"hidden": [8]},
            "ppo": {"epochs": 1, "num_minibatches": 4},
        }
    )


@pytest.mark.usefixtures("foreign")
def test_both_train_on_gymnasiums_worlds(tmp_path, monkeypatch):
    """Pendulum's returns are negative sums of costs, at most 16.3 in each of 200 steps."""
    monkeypatch.setattr(ppo_mujoco, "configured", tiny)
    monkeypatch.setitem(ppo_mujoco.CLEANRL, "Pendulum-v1", ppo_mujoco.Published(0.0, 0.0))
    path = tmp_path / "x.json"
    ppo_mujoco.compare("Pendulum-v1", None, 1, False, ppo.torch_options, path)
    found = ppo_mujoco.figures(report.stored(path), "Pendulum-v1", 1)
    for own in found.values():
        assert own["steps"] == 512
        assert own["seconds"] > 0
        for metric in ("train_return", "eval_return"):
            assert -3260 < own[metric] < -10
