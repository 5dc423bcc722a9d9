"""Which library plays a task of the DM Control Suite."""

import importlib.util

import pytest

import jmarl
from jmarl.envs.adapters import brax, dm_control, gymnasium
from jmarl.errors import ConfigError
from tests.support.random_play import played


@pytest.fixture
def libraries(monkeypatch):
    """`libraries(names, …)`: these packages are there; what is made is told, not made."""

    def told(library):
        return lambda name, world, options: (library, name, world, dict(options))

    def given(*names):
        monkeypatch.setattr(dm_control, "_installed", lambda module: module in names)

    monkeypatch.setattr(brax, "make", told("playground"))
    monkeypatch.setattr(brax, "playground_worlds", lambda: ("CartpoleBalance",))
    monkeypatch.setattr(gymnasium, "make", told("shimmy"))
    return given


PLAYGROUND, SHIMMY = "mujoco_playground", ("shimmy", "dm_control")
IN_PLAYGROUND = ("playground", "playground/CartpoleBalance", "CartpoleBalance")


def through_shimmy(task, world):
    return "shimmy", f"dm_control/{task}", f"shimmy:dm_control/{world}-v0"


@pytest.mark.parametrize(
    ("there", "task", "made"),
    [
        ((PLAYGROUND,), "cartpole/balance", IN_PLAYGROUND),
        ((PLAYGROUND, *SHIMMY), "cartpole/balance", IN_PLAYGROUND),
        ((PLAYGROUND, *SHIMMY), "dog/run", through_shimmy("dog/run", "dog-run")),
        (SHIMMY, "cartpole/balance", through_shimmy("cartpole/balance", "cartpole-balance")),
        (SHIMMY, "humanoid_CMU/run", through_shimmy("humanoid_CMU/run", "humanoid_CMU-run")),
    ],
)
def test_playground_plays_what_it_has_and_shimmy_the_rest(libraries, there, task, made):
    libraries(*there)
    *found, options = jmarl.make(f"dm_control/{task}", episode_length=7)
    assert tuple(found) == made
    limit = "episode_length" if made[0] == "playground" else "max_episode_steps"
    assert options == {limit: 7}


@pytest.mark.parametrize(
    ("there", "task", "words"),
    [
        ((), "cartpole/balance", [r"jmarl\[playground\]", r"jmarl\[dm_control\]"]),
        (("shimmy",), "cartpole/balance", [r"jmarl\[playground\]", r"jmarl\[dm_control\]"]),
        ((PLAYGROUND,), "dog/run", ["not in MuJoCo Playground", r"jmarl\[dm_control\]"]),
        (SHIMMY, "cartpole", ["dm_control/DOMAIN/TASK"]),
    ],
)
def test_what_nobody_plays_is_refused(libraries, there, task, words):
    libraries(*there)
    for word in words:
        with pytest.raises(ConfigError, match=word):
            jmarl.make(f"dm_control/{task}")


def test_bad_options_are_refused(libraries):
    libraries(*SHIMMY)
    for bad in ({"gravity": 3}, {"episode_length": 0}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            jmarl.make("dm_control/dog/run", **bad)


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, SHIMMY)), reason="needs the dm_control extra"
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("foreign")
def test_a_task_of_the_suite():
    env = jmarl.make("dm_control/lqr/lqr_2_1", episode_length=3)
    assert env.spec.on_host
    _, later, _ = played(env, 2, 6)
    assert later.truncated[:, 0].tolist() == [False, False, True] * 2
