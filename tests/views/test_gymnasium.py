"""Worlds of one agent as Gymnasium's environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import jmarl
from jmarl.errors import ConfigError
from jmarl.views.gymnasium import SingleWorld, VectorOfWorlds

pytestmark = pytest.mark.filterwarnings("ignore:.*Box observation space:UserWarning")


@pytest.fixture(scope="module")
def single():
    return SingleWorld(jmarl.make("mpe/simple", actions="continuous", episode_length=3))


@pytest.fixture(scope="module")
def vector():
    return VectorOfWorlds(jmarl.make("mpe/simple", actions="continuous", episode_length=3), 2)


def test_gymnasium_s_checker_passes(single):
    check_env(single, skip_render_check=True)


def test_a_vector_s_worlds_are_single_worlds_with_seeds_that_count_up(single, vector):
    actions = np.random.default_rng(0).uniform(size=(5, 2, 5)).astype(np.float32)
    seen, _ = vector.reset(seed=7)
    assert vector.observation_space.contains(seen)
    steps = [vector.step(each) for each in actions]
    for world in range(2):
        obs, _ = single.reset(seed=7 + world)
        np.testing.assert_array_equal(obs, seen[world])
        for t, (views, rewards, terminated, truncated, infos) in enumerate(steps):
            obs, reward, *ends, _ = single.step(actions[t, world])
            np.testing.assert_allclose(reward, rewards[world], rtol=1e-6)
            assert ends == [terminated[world], truncated[world]] == [False, t == 2]
            last = infos["final_obs"][world] if t == 2 else views[world]
            np.testing.assert_allclose(obs, last, rtol=1e-5, atol=1e-6)
            if t == 2:  # the vector has begun the next episode already
                assert infos["_final_obs"][world]
                break
    again, _ = vector.reset(seed=[7, 8])
    np.testing.assert_array_equal(again, seen)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


def test_gymnasium_s_own_wrappers_take_a_vector(vector):
    recorded = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector)
    recorded.reset(seed=0)
    infos = [recorded.step(vector.action_space.sample())[-1] for _ in range(3)]
    assert (infos[-1]["episode"]["l"] == 3).all()


def test_what_does_not_fit_is_refused(vector):
    with pytest.raises(ConfigError, match=r"has 3 agents.*to_pettingzoo"):
        SingleWorld(jmarl.make("mpe/simple_spread"))
    with pytest.raises(ConfigError, match="neither one number nor 2"):
        vector.reset(seed=[1, 2, 3])
