"""`check_env` finds nothing in the built-in worlds, and every planted fault in a wrong one."""

import re
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jmarl
from jmarl.envs.base import Team
from jmarl.envs.check import shape_faults
from jmarl.envs.mpe import SCENARIOS
from jmarl.envs.probe import PROBES

PLAYED = ("mpe/simple_spread", "mpe/simple_world_comm", "probe/death", "probe/memory")


@pytest.mark.parametrize("name", PLAYED)
def test_built_in_worlds_play_as_they_should(name):
    assert jmarl.check_env(name) == []


def test_continuous_actions_are_clipped():
    assert jmarl.check_env(jmarl.make("mpe/simple", actions="continuous", episode_length=3)) == []


@pytest.mark.parametrize(
    "name", [*(f"mpe/{s}" for s in SCENARIOS), *(f"probe/{p}" for p in PROBES)]
)
def test_built_in_worlds_have_the_shapes_that_they_declare(name):
    assert shape_faults(jmarl.make(name)) == []


def test_a_world_of_another_library(foreign):
    assert jmarl.check_env("gymnax/CartPole-v1", steps=30) == []


SOUND = jmarl.make("probe/memory")  # two steps; random views at the start
CLIPPED = jmarl.make("mpe/simple", actions="continuous", episode_length=3)
COUNT = iter(range(10**6))


@dataclass(frozen=True)
class Wrong:
    """A sound world but for what `spoil` does to the time steps of `reset` or `step`."""

    spoil: Any
    function: str = "step"
    inner: Any = SOUND
    spec: Any = field(default=None)

    def __post_init__(self):
        object.__setattr__(self, "spec", self.spec or self.inner.spec)

    def reset(self, key, num_envs):
        return self._spoilt("reset", *self.inner.reset(key, num_envs))

    def step(self, key, state, action):
        return self._spoilt("step", *self.inner.step(key, state, action))

    def _spoilt(self, function, state, timestep):
        made = self.spoil(timestep) if function == self.function else {}
        return made.pop("env", state), timestep._replace(**made) if made else timestep


SPOILT = [
    (
        lambda t: {"reward": t.reward[..., None]},
        "step: reward, .* has shape .3, 1, 1., not .3, 1. =",
    ),
    (lambda t: {"obs": t.obs.astype(int)}, "step: obs, the observations, is int32, not floating"),
    (lambda t: {"truncated": t.truncated * 1.0}, "truncated, .*, is float32, not bool"),
    (lambda t: {"state": t.state * jnp.nan}, "step: state is NaN in"),
    (lambda t: {"reward": t.reward + jnp.inf}, "step: reward is infinite in"),
    (lambda t: {"action_mask": ~t.action_mask}, "action_mask allows an agent no action at all"),
    (
        lambda t: {"truncated": t.truncated & False, "terminated": t.terminated & False},
        "goes on after",
    ),
    (
        lambda t: {"final_obs": t.final_obs + 1.0},
        "final_obs differs from obs where no episode ends",
    ),
    (lambda t: {"won": t.truncated}, "won is set where spec.winnable=True"),
    (lambda t: {"env": {"other": t.obs}}, "step returns a state of another structure than reset"),
    (
        lambda t: {"reward": t.reward + next(COUNT)},
        "something else for the same key, state and action",
    ),
    (lambda t: [][0], "step fails: IndexError: list index out of range"),
]


@pytest.mark.parametrize(("spoil", "words"), SPOILT)
def test_a_planted_fault_of_step_is_found(spoil, words):
    faults = jmarl.check_env(Wrong(spoil), steps=6)
    assert any(re.search(words, fault) for fault in faults), faults


def test_a_planted_fault_of_reset_is_found():
    for spoil, words in (
        (
            lambda t: {"terminated": ~t.terminated},
            "terminated or truncated is True, but an episode",
        ),
        (lambda t: {"obs": t.obs + next(COUNT)}, "reset returns something else for the same key"),
        (lambda t: {"obs": t.obs + t.obs.sum()}, "a world depends on the other worlds' keys"),
    ):
        faults = jmarl.check_env(Wrong(spoil, "reset"), steps=6)
        assert any(re.search(words, fault) for fault in faults), faults


def test_a_world_without_a_reset_of_its_own_is_found():
    """Its observation where an episode ends is the last one, not the first of the next."""
    inner = jmarl.make("gymnax/CartPole-v1")
    wrong = Wrong(lambda t: {"obs": t.final_obs, "state": t.final_state}, inner=inner)
    with jax.numpy_rank_promotion("allow"):
        faults = jmarl.check_env(wrong, steps=60)
    assert any("obs and final_obs are the same" in fault for fault in faults), faults


def test_actions_beyond_their_bounds_are_found():
    @dataclass(frozen=True)
    class Unclipped(Wrong):
        def step(self, key, state, action):
            state, timestep = self.inner.step(key, state, action)
            return state, timestep._replace(reward=timestep.reward + action.sum(-1))

    faults = jmarl.check_env(Unclipped(None, inner=CLIPPED))
    assert faults == ["step does not clip actions to their bounds: call spec.clip(action) first."]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"agents": ("a", "a"), "teams": (Team("x", (0, 1)),)}, "has 'a' twice"),
        ({"teams": (Team("x", (0, 5)),)}, "spec.teams must have every agent"),
        ({"obs_sizes": (2, 2, 2)}, "spec.obs_sizes has 3 entries"),
        ({"agents": ["a"]}, "spec cannot be hashed"),
        ({"episode_length": 0}, "spec.episode_length=0 must be at least 1"),
        ({"episode_length": 1}, "an episode goes on after spec.episode_length=1 steps"),
        ({"agents_leave": False, "in_step": True}, "spec.in_step is True"),
    ],
)
def test_a_description_that_is_wrong_is_found(change, words):
    inner = jmarl.make("gymnax/CartPole-v1") if "in_step" in change else SOUND
    with jax.numpy_rank_promotion("allow"):
        wrong = Wrong(lambda t: {}, inner=inner, spec=replace(inner.spec, **change))
        faults = jmarl.check_env(wrong, steps=40 if "in_step" in change else 4)
    assert any(words in fault for fault in faults), faults
