"""Worlds of Gymnasium and PettingZoo, which Python steps."""

import sys
import types

import gymnasium
import jax
import numpy as np
import pytest

import jmarl
from jmarl.envs.adapters.joint_worlds import make_vector
from jmarl.envs.adapters.pettingzoo import PettingZooWorld
from jmarl.errors import ConfigError
from tests.support.tiny_runs import configured, go, resumed


def played(env, num_envs, steps, seed=0):
    """Random play: the first time step, those of all steps, and the actions."""

    def play(key):
        reset_key, key = jax.random.split(key)
        state, first = env.reset(reset_key, num_envs)

        def step(state, key):
            action = env.spec.action_space.sample(key, (num_envs, env.spec.num_agents))
            state, timestep = env.step(key, state, action)
            return state, (timestep, action)

        _, (later, action) = jax.lax.scan(step, state, jax.random.split(key, steps))
        return first, later, action

    return jax.device_get(jax.jit(play)(jax.random.key(seed)))


@pytest.mark.usefixtures("foreign")
def test_a_gymnasium_world_steps_as_gymnasium_does():
    """CartPole: its episodes end at different times, and begin anew in the same step."""
    env = jmarl.make("gymnasium/CartPole-v1")
    first, later, action = played(env, 3, 60)
    native = gymnasium.make("CartPole-v1")
    for world in range(3):
        native.reset(seed=0)
        native.unwrapped.state = first.obs[world, 0].astype(np.float64)
        for t in range(60):
            obs, reward, terminated, truncated, _ = native.step(int(action[t, world, 0]))
            np.testing.assert_allclose(later.final_obs[t, world, 0], obs, atol=1e-4)
            assert later.reward[t, world, 0] == reward
            assert later.terminated[t, world, 0] == terminated
            assert later.truncated[t, world] == truncated
            if terminated:  # the next episode's first view, from which the native one goes on
                native.reset(seed=0)
                native.unwrapped.state = later.obs[t, world, 0].astype(np.float64)
    assert later.terminated.any()


class Countdown:
    """Agents of unlike views and actions leave after `1 + agent` steps, in numpy."""

    possible_agents = ("short", "long")

    def __init__(self, steps=2):
        self.steps, self.agents = steps, []

    def observation_space(self, agent):
        size = 1 + self.possible_agents.index(agent)
        return gymnasium.spaces.Box(-np.inf, np.inf, (size,))

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(2 + self.possible_agents.index(agent))

    @property
    def unwrapped(self):
        return self

    def reset(self, seed=None, options=None):
        self.now, self.agents = 0, list(self.possible_agents)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert sorted(actions) == sorted(self.agents)
        self.now += 1
        acting, reward = self.agents, {agent: float(a) for agent, a in actions.items()}
        limits = {"short": self.steps, "long": self.steps + 1}
        ends = {agent: self.now >= limits[agent] for agent in acting}
        seen = self._seen()
        self.agents = [agent for agent in acting if not ends[agent]]
        return seen, reward, ends, dict.fromkeys(acting, False), {agent: {} for agent in acting}

    def _seen(self):
        sizes = {agent: 1 + i for i, agent in enumerate(self.possible_agents)}
        return {agent: np.full(sizes[agent], self.now, np.float32) for agent in self.agents}

    def close(self):
        pass


@pytest.fixture
def countdown(monkeypatch):
    module = types.ModuleType("countdown")
    module.parallel_env = Countdown
    monkeypatch.setitem(sys.modules, "countdown", module)
    return "pettingzoo/countdown"


def test_agents_of_a_pettingzoo_world_leave_one_by_one(countdown):
    env = jmarl.make(countdown, steps=2, episode_length=9)
    assert env.spec.obs_sizes == (1, 2)
    assert env.spec.episode_length == 9
    _, later, action = played(env, 2, 6)
    np.testing.assert_array_equal(later.terminated[:3, 0], [[0, 0], [1, 0], [1, 1]])
    np.testing.assert_array_equal(later.active[:3, 0], [[1, 1], [0, 1], [1, 1]])
    np.testing.assert_array_equal(later.terminated[3:], later.terminated[:3])
    np.testing.assert_array_equal(later.final_obs[2, 0], [[0, 0], [3, 3]])
    np.testing.assert_array_equal(later.obs[2, 0], 0)
    acted = np.array([[1, 1], [1, 1], [0, 1]] * 2)[:, None]
    np.testing.assert_array_equal(later.reward, action * acted)


def test_workers_see_what_one_process_sees():
    """Of gymnasium's vectors: both are given the same seeds and actions."""

    def build():
        from mpe2 import simple_speaker_listener_v4

        return PettingZooWorld("x", simple_speaker_listener_v4.parallel_env, {}, None)

    seen = []
    for processes in (False, True):
        vector = make_vector(build, 2, processes)
        first, _ = vector.reset(seed=[3, 4])
        after = vector.step(np.array([[1.0, 2], [2, 4]]))[0]
        seen.append((first["obs"], after["obs"], after["reward"]))
        vector.close()
    for one, other in zip(*seen, strict=True):
        np.testing.assert_allclose(one, other)


def test_a_run_trains_is_scored_and_resumes_with_new_episodes(tmp_path, countdown):
    path = tmp_path / "run"
    go(configured(path, env=countdown, env_options={"episode_length": 4}, total_updates=2))
    outcome = resumed(path, total_updates=4)
    assert outcome.update == 4
    assert (path / "summary.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 2}, "2 members cannot train together"),
        ({"devices": 2}, "devices=2 cannot share worlds"),
    ],
)
def test_what_the_host_cannot_do_is_refused(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        go(configured(tmp_path / "x", env="gymnasium/CartPole-v1", **options))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gymnasium/NoSuchWorld-v1", {}, "NoSuchWorld"),
        ("gymnasium/CartPole-v1", {"gravitation": 3}, "gravitation"),
        ("gymnasium/CartPole-v1", {"processes": 3}, "processes"),
        ("pettingzoo/no_such_module", {}, "no_such_module"),
    ],
)
def test_bad_names_and_options_are_refused(name, options, message):
    with pytest.raises(ConfigError, match=message):
        jmarl.make(name, **options)
