"""Recorded episodes: what agents saw, did and earned."""

import jax
import numpy as np
import pytest

from jmarl.commands import evaluate
from jmarl.errors import ConfigError
from jmarl.evaluation.episode_arrays import record_episodes
from jmarl.evaluation.minari_data import check_minari
from jmarl.learning.episodes import play_episodes
from tests.support.tiny_runs import configured, go, policy_in


def test_they_are_the_episodes_that_are_scored():
    policy = policy_in("mpe/simple_speaker_listener", env_options={"episode_length": 4})
    played = record_episodes(policy, jax.random.key(3), 5, greedy=False)
    scored = play_episodes(
        policy.env, policy.players, policy.policies, jax.random.key(3), 5, deterministic=False
    )
    np.testing.assert_allclose(played.reward.sum(1), scored.agent_return, rtol=1e-5)
    assert played.obs.shape == (5, 5, 2, 11)
    assert (played.length == 4).all()
    np.testing.assert_array_equal(played.truncated, [[False] * 3 + [True]] * 5)
    # the listener's view of its velocity in step t + 1 follows from its move in step t
    again = policy.act(
        {
            agent: played.obs[:, 0, i, :size]
            for i, (agent, size) in enumerate(
                zip(policy.spec.agents, policy.spec.obs_sizes, strict=True)
            )
        }
    )
    greedy = record_episodes(policy, jax.random.key(3), 5)
    assert list(again.action) == list(policy.spec.agents)
    for i, agent in enumerate(policy.spec.agents):
        np.testing.assert_array_equal(again.action[agent], greedy.action[:, 0, i])


def test_nothing_follows_an_end():
    """Agent 1 of this world is out after one step of three."""
    played = record_episodes(policy_in("probe/death"), jax.random.key(0), 2)
    assert (played.length == 3).all()
    np.testing.assert_array_equal(played.active[0], [[1, 1], [1, 0], [1, 0], [0, 0]])
    np.testing.assert_array_equal(played.terminated[0], [[0, 1], [0, 1], [1, 1]])


def test_the_command_writes_arrays_with_their_names(tmp_path, called):
    run = tmp_path / "run"
    go(configured(run, total_updates=1, env_options={"num_agents": 2}))
    code, said = called(evaluate, run, "--episodes", 4, "--record", 3)
    assert code == 0, said
    with np.load(run / "episodes.npz") as file:
        assert file["action"].shape == (3, 25, 2)
        assert file["agents"].tolist() == ["agent_0", "agent_1"]
        assert file["reward"].sum() < 0
    code, said = called(evaluate, run, "--minari", "x/y-v0")
    assert (code, "needs record=N" in said) == (2, True)
    code, said = called(evaluate, run, "--record", 3, "--world", "mpe2")
    assert (code, "needs world='native'" in said) == (2, True)


def test_without_minari_a_sentence_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'pip install "jmarl\[minari\]"'):
        check_minari("x/y-v0")
