"""The native worlds against Farama's mpe2: whole episodes, every number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jmarl
from jmarl.envs.mpe.env import MpeState
from jmarl.envs.mpe.world import World
from jmarl.types import float_dtype
from tests.support import mpe2_play

EPISODES = 20
SCENARIOS = list(mpe2_play.VERSIONS)
SOLID = {"simple_spread", "simple_push", "simple_tag", "simple_world_comm"}
# Contact is chaotic: float32 round-off grows past 1e-5 within an episode once discs are deep inside
# each other, which obstacles bring about. There, single precision is compared step by step from
# mpe2's own states; double precision always free-runs, and from crowded starts.
OBSTACLES = {"simple_tag", "simple_world_comm"}
CROWD = {"simple_push": 0.2}  # from mpe2's own starts these two would hardly ever meet
OTHER_SIZES = [
    ("simple_spread", {"num_agents": 5, "local_ratio": 0.2, "episode_length": 10}),
    ("simple_spread", {"num_agents": 10, "episode_length": 8}),  # folds become loops
    ("simple_spread", {"num_agents": 2, "num_landmarks": 4, "local_ratio": 1.0}),
    ("simple_spread", {"num_agents": 1, "local_ratio": 0.0, "episode_length": 4}),
    ("simple_reference", {"local_ratio": 0.9, "episode_length": 7}),
    ("simple_adversary", {"num_good": 4}),
    ("simple_tag", {"num_good": 2, "num_adversaries": 4, "num_obstacles": 0}),
    ("simple_tag", {"num_good": 3, "num_adversaries": 9, "num_obstacles": 3, "episode_length": 10}),
    ("simple_world_comm", {"num_good": 1, "num_adversaries": 2, "num_forests": 0}),
    (
        "simple_world_comm",
        {"num_good": 3, "num_adversaries": 1, "num_obstacles": 3, "num_food": 1, "num_forests": 3},
    ),
]


def native_world(play, t):
    """mpe2's worlds before step t, as native ones."""
    numbers = {k: jnp.asarray(v[t], float_dtype()) for k, v in play.worlds.items()}
    return World(**numbers | {"goal": numbers["goal"].astype(jnp.int32)})


def compare(play, env, timestep, t, tolerance, rounded):
    """All that step t led to: observations, global state, rewards, ends."""
    for i, size in enumerate(env.spec.obs_sizes):
        expected = (play.delivered if rounded else play.obs)[i][t]
        np.testing.assert_allclose(
            timestep.final_obs[:, i, :size], expected, atol=tolerance, rtol=tolerance
        )
    np.testing.assert_allclose(timestep.final_state, play.state[t], atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(timestep.reward, play.reward[t], atol=tolerance, rtol=tolerance)


def check_play(play, env, tolerance, rounded, free_running=True):
    """Replay recorded episodes in the native worlds, all episodes side by side.

    Free-running, the native worlds start where mpe2 started and are then left alone. Otherwise
    they take every single step from the very state in which mpe2 took it.
    """
    assert list(env.spec.agents) == play.agents
    assert env.spec.obs_sizes == tuple(obs.shape[-1] for obs in play.obs)
    step = jax.jit(env.step)
    state = MpeState(native_world(play, 0), jnp.zeros((), jnp.int32))
    first, _ = jax.jit(env._views)(state.world)
    for i, size in enumerate(env.spec.obs_sizes):
        np.testing.assert_allclose(first[:, i, :size], play.first_obs[i], atol=tolerance, rtol=0)
    last = play.actions.shape[0] - 1
    for t, key in enumerate(jax.random.split(jax.random.key(1), last + 1)):
        if not free_running:
            state = state.replace(world=native_world(play, t))
        state, timestep = step(key, state, jnp.asarray(play.actions[t]))
        compare(play, env, timestep, t, tolerance, rounded)
        np.testing.assert_array_equal(timestep.terminated, play.terminated[t])
        cut = np.broadcast_to(timestep.truncated[:, None], play.truncated[t].shape)
        np.testing.assert_array_equal(cut, play.truncated[t])
        if t < last:  # no reset came between: what is seen next is what the step led to
            np.testing.assert_array_equal(timestep.obs, timestep.final_obs)
    assert not play.terminated.any()
    assert timestep.truncated.all()
    assert not np.array_equal(timestep.obs, timestep.final_obs)
    assert state.step == 0


@pytest.mark.parametrize("actions", ["discrete", "continuous"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_whole_episodes_in_single_precision(scenario, actions):
    play = mpe2_play.play(scenario, actions, {}, EPISODES, 7, crowd=CROWD.get(scenario, 1.0))
    assert (play.contacts > 0) == (scenario in SOLID)
    env = jmarl.make(f"mpe/{scenario}", actions=actions)
    check_play(play, env, 1e-5, rounded=True, free_running=scenario not in OBSTACLES)


@pytest.mark.parametrize("actions", ["discrete", "continuous"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_whole_episodes_in_double_precision(scenario, actions, x64):
    play = mpe2_play.play(scenario, actions, {}, EPISODES, 11, crowd=0.2, dtype=np.float64)
    assert (play.contacts > 0) == (scenario in SOLID)
    check_play(play, jmarl.make(f"mpe/{scenario}", actions=actions), 1e-9, rounded=False)


@pytest.mark.parametrize(("scenario", "options"), OTHER_SIZES)
def test_other_numbers_of_everything(scenario, options, x64):
    play = mpe2_play.play(scenario, "discrete", options, EPISODES, 13, crowd=0.3)
    if scenario in SOLID and len(play.agents) > 1:
        assert play.contacts > 0
    env = jmarl.make(f"mpe/{scenario}", actions="discrete", **options)
    check_play(play, env, 1e-9, rounded=False)
