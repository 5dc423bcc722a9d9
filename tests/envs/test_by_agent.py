"""Dictionaries by agent and padded arrays."""

import numpy as np
import pytest

import jmarl
from jmarl.envs.by_agent import joint_action, joint_mask, joint_obs, own_action, own_mask, own_obs
from jmarl.errors import ConfigError


@pytest.fixture(scope="module")
def spec():
    """The speaker sees 3 numbers and says one of 3 words; the listener sees 11 and moves 5 ways."""
    return jmarl.make("mpe/simple_speaker_listener").spec


def test_observations_are_padded_at_the_end(spec):
    obs = {"speaker_0": np.arange(3.0), "listener_0": np.arange(11.0)}
    joint = joint_obs(spec, obs)
    np.testing.assert_array_equal(joint[0], [0, 1, 2, *[0] * 8])
    np.testing.assert_array_equal(joint[1], np.arange(11))
    for agent, own in own_obs(spec, joint).items():
        np.testing.assert_array_equal(own, obs[agent])
    alone = joint_obs(spec, {"listener_0": np.ones((4, 11))})
    assert alone.shape == (4, 2, 11)
    assert not alone[:, 0].any()


@pytest.mark.parametrize("actions", ["discrete", "continuous", "multidiscrete"])
def test_actions_come_back(actions):
    """In simple_world_comm one of six agents also speaks."""
    spec = jmarl.make("mpe/simple_world_comm", actions=actions).spec
    shapes = [space.shape for space in spec.action_spaces]
    own = {
        agent: np.arange(1, 1 + int(np.prod(shape))).reshape(shape)
        for agent, shape in zip(spec.agents, shapes, strict=True)
    }
    joint = joint_action(spec, own)
    assert joint.shape == (spec.num_agents, *spec.action_space.shape)
    back = own_action(spec, joint)
    for agent, shape in zip(spec.agents, shapes, strict=True):
        assert back[agent].shape == shape
        np.testing.assert_array_equal(back[agent], own[agent])


def test_masks_of_absent_agents_forbid_nothing(spec):
    joint = joint_mask(spec, {"listener_0": np.array([1, 0, 0, 1, 1], np.int8)})
    np.testing.assert_array_equal(joint, [[1, 1, 1, 0, 0], [1, 0, 0, 1, 1]])
    assert own_mask(spec, joint)["speaker_0"].tolist() == [True] * 3


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ({"speaker": np.zeros(3)}, "given for 'speaker'; .* has speaker_0, listener_0"),
        ({"speaker_0": np.zeros(4)}, r"speaker_0 has shape \(4,\), not \(3,\)"),
        ({}, "given for nobody"),
    ],
)
def test_what_does_not_fit_is_refused(spec, obs, message):
    with pytest.raises(ConfigError, match=message):
        joint_obs(spec, obs)
