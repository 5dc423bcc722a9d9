"""Groups of agents: their part of what everybody sees and does."""

import jax.numpy as jnp
import numpy as np

from jmarl.envs.base import EnvSpec, Team
from jmarl.envs.spaces import Discrete, MultiDiscrete
from jmarl.policies.base import (
    Player,
    joint_action,
    merge,
    player_space,
    player_view,
    real_features,
)
from jmarl.types import PolicyInput

E = 2
TALKER = MultiDiscrete((5, 4))


def spec(**options):
    """Agents 0 and 2 move, and see 2 and 3 numbers; agent 1 also talks, and sees 4."""
    return EnvSpec(
        name="test/talk",
        agents=("a", "b", "c"),
        teams=(Team("movers", (0, 2)), Team("talker", (1,))),
        obs_sizes=(2, 4, 3),
        action_spaces=(Discrete(5), TALKER, Discrete(3)),
        state_size=1,
        episode_length=1,
        dialect="test",
        **options,
    )


def seen_by_all(mask):
    obs = jnp.arange(E * 3 * 4, dtype=jnp.float32).reshape(E, 3, 4)
    return PolicyInput(obs, jnp.zeros((E, 1)), mask)


def group(*agents, team=None):
    return Player("group", agents, None, "team_mean", "own", team)


def test_a_group_sees_its_own_part():
    world, mask = spec(), jnp.asarray(np.broadcast_to(spec().action_mask, (E, 3, 9)))
    everything = seen_by_all(mask)
    movers = player_view(world, group(0, 2), everything)
    np.testing.assert_array_equal(movers.obs, np.asarray(everything.obs)[:, [0, 2], :3])
    own = [[True] * 5, [True] * 3 + [False] * 2]  # without the talker's second head
    np.testing.assert_array_equal(movers.action_mask, [own] * E)
    talker = player_view(world, group(1, team=(0, 1, 2)), everything)
    np.testing.assert_array_equal(talker.obs, np.asarray(everything.obs)[:, 1:2])
    np.testing.assert_array_equal(talker.team_obs, everything.obs)
    np.testing.assert_array_equal(talker.action_mask, np.ones((E, 1, 9), bool))
    assert player_view(world, group(1), seen_by_all(None)).action_mask is None


def test_actions_of_unlike_groups_become_one_array():
    world, players = spec(), [group(1), group(0, 2)]
    assert player_space(world, (0, 2)) == Discrete(5)
    assert player_space(world, (1,)) == TALKER
    given = [jnp.array([[[4, 3]], [[1, 2]]]), jnp.array([[0, 2], [3, 1]])]
    joint = joint_action(world, players, given)
    np.testing.assert_array_equal(joint, [[[0, 0], [4, 3], [2, 0]], [[3, 0], [1, 2], [1, 0]]])


def test_parts_are_merged_in_agent_order():
    parts = [jnp.array([[10, 11]]), jnp.array([[12]])]
    np.testing.assert_array_equal(merge(parts, [(0, 2), (1,)], axis=1), [[10, 12, 11]])
    np.testing.assert_array_equal(merge(parts, [(0, 1), (2,)], axis=1), [[10, 11, 12]])


def test_real_features_are_marked_where_somebody_has_padding():
    np.testing.assert_array_equal(real_features((2, 3)), [[1, 1, 0], [1, 1, 1]])
    assert real_features((3, 3)) is None
