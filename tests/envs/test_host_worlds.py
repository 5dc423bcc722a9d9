"""Worlds of Gymnasium and PettingZoo, which Python steps."""

import sys
import types

import gymnasium
import jax
import numpy as np
import pytest
from rich.console import Console

import jmarl
from jmarl.config.train_config import build
from jmarl.envs.adapters import host
from jmarl.envs.adapters.host import call_host
from jmarl.envs.adapters.joint_worlds import make_vector
from jmarl.envs.adapters.pettingzoo import PettingZooWorld
from jmarl.errors import ConfigError
from jmarl.execution import sharding
from jmarl.execution.cpu_devices import make_devices
from jmarl.execution.population import make_population
from jmarl.runs.single import resumed_values, run
from tests.support.random_play import played
from tests.support.tiny_runs import configured, go


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
        first = vector.reset(seed=[3, 4])[0]["obs"].copy()  # the next step writes into it
        after = vector.step(np.array([[1.0, 2], [2, 4]]))[0]
        seen.append((first, after["obs"].copy(), after["reward"].copy()))
        vector.close()
    for one, other in zip(*seen, strict=True):
        np.testing.assert_allclose(one, other)


def test_a_run_trains_is_scored_and_resumes_with_new_episodes(tmp_path, countdown, capsys):
    path = tmp_path / "run"
    go(configured(path, env=countdown, env_options={"episode_length": 4}, total_updates=2))
    console = Console(width=200)
    outcome = run(build(resumed_values(path) | {"total_updates": 4, "quiet": False}), console)
    assert outcome.outcome.update == 4
    assert "its worlds begin new episodes: a checkpoint cannot hold" in capsys.readouterr().out
    assert (path / "summary.json").exists()


ON_HOST = {"env": "gymnasium/CartPole-v1"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 2}, "2 members cannot train together, because Python steps"),
        ({"devices": 2}, "devices=2 cannot share worlds"),
        (
            {"hosts": {"coordinator": "x:1", "processes": 2, "process_id": 0}},
            "hosts.processes=2 cannot share worlds",
        ),
        ({"hosts": {"join": True}}, "several processes cannot share worlds"),
    ],
)
def test_what_the_host_cannot_do_is_refused(tmp_path, options, message):
    """Before anything is on disk, before processes wait for each other, and by `make_train`."""
    config = configured(tmp_path / "x", **ON_HOST, **options)
    for act in (go, lambda config: make_devices([(config, config.seeds)])):
        with pytest.raises(ConfigError, match=message):
            act(config)
    if "seeds" not in options:
        train = jmarl.make_train(config.model_copy(update={"run_dir": None}))
        with pytest.raises(ConfigError, match=message):
            jax.eval_shape(train, jax.random.key(0))
    assert not (tmp_path / "x").exists()


def test_a_sweep_with_several_members_is_refused(tmp_path):
    base = {"algorithm": "ippo", "num_envs": 4, "ppo": {"num_minibatches": 1}, **ON_HOST}
    with pytest.raises(ConfigError, match="2 members cannot train together"):
        jmarl.sweep(base=base, grid={"lr": [1e-3, 3e-4]}, sweep_dir=tmp_path / "x", quiet=True)


def test_vmap_is_refused(countdown):
    keys = jax.random.split(jax.random.key(0), 2)
    train = jmarl.make_train(configured(None, **ON_HOST))
    with pytest.raises(ConfigError, match="2 members cannot train together"):
        jax.eval_shape(jax.vmap(train), keys)
    env = jmarl.make(countdown, episode_length=9)
    with pytest.raises(ConfigError, match="vmap cannot batch worlds that Python steps"):
        jax.vmap(lambda key: env.reset(key, 1))(keys)


def test_on_a_machine_with_several_devices_one_steps_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sharding, "chosen_devices", lambda *_: pytest.fail("several devices"))
    config = configured(tmp_path / "x", **ON_HOST)
    assert len(make_population(config).devices) == 1


def test_other_devices_call_the_host_too(monkeypatch):
    """What they would run, run on the CPU."""
    shape = jax.ShapeDtypeStruct((3,), np.float32)

    def twice(x):
        return call_host(lambda x: 2 * np.asarray(x), shape, x)

    calls = []

    def other(*given, cpu, default):
        calls.append(cpu)
        return default(*given)

    np.testing.assert_array_equal(jax.jit(twice)(np.ones(3, np.float32)), 2)
    monkeypatch.setattr(host.lax, "platform_dependent", other)
    np.testing.assert_array_equal(jax.jit(lambda x: twice(x))(np.ones(3, np.float32)), 2)
    assert len(calls) == 1


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
