"""`dialect="onpolicy"`: the three cooperative scenarios as on-policy's fork plays them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jmarl
from jmarl.envs.mpe.simple_spread import SimpleSpread
from tests.support.onpolicy_world import OnPolicyWorld


def actions_for(scenario, rng, num_envs):
    """Joint actions in the native form, and (moves, words) for the numpy worlds."""
    moves = rng.integers(5, size=(num_envs, 3 if scenario == "simple_spread" else 2))
    if scenario == "simple_spread":
        return moves, moves, None
    words = rng.integers(3 if scenario == "simple_speaker_listener" else 10, size=moves.shape)
    if scenario == "simple_speaker_listener":  # the speaker chooses a word, the listener a move
        return np.stack([words[:, 0], moves[:, 1]], axis=1), moves, words
    return np.stack([moves, words], axis=-1), moves, words


@pytest.mark.parametrize(
    "scenario", ["simple_spread", "simple_reference", "simple_speaker_listener"]
)
def test_whole_episodes_equal_the_numpy_worlds(scenario, x64):
    num_envs, rng = 20, np.random.default_rng(5)
    env = jmarl.make(f"mpe/{scenario}", dialect="onpolicy")
    assert env.spec.dialect == "onpolicy"
    state, _ = jax.jit(env.reset, static_argnums=1)(jax.random.key(0), num_envs)
    crowded = state.world.replace(pos=0.3 * state.world.pos)
    state = state.replace(world=crowded)
    by_world = jax.tree.map(lambda x: np.moveaxis(np.asarray(x), -1, 0), crowded)
    worlds = [
        OnPolicyWorld(scenario, by_world.pos[e], by_world.landmarks[e], by_world.goal[e])
        for e in range(num_envs)
    ]
    step, touched = jax.jit(env.step), 0
    for key in jax.random.split(jax.random.key(1), 25):
        action, moves, words = actions_for(scenario, rng, num_envs)
        state, timestep = step(key, state, jnp.asarray(action))
        for e, world in enumerate(worlds):
            paid = world.step(moves[e], None if words is None else words[e])
            np.testing.assert_allclose(timestep.reward[e], paid, atol=1e-9, rtol=1e-9)
            for i, seen in enumerate(world.observations()):
                ours = timestep.final_obs[e, i, : len(seen)]
                np.testing.assert_allclose(ours, seen, atol=1e-9, rtol=0)
            touched += np.linalg.norm(world.pos[0] - world.pos[1]) < 0.3
    assert timestep.truncated.all()
    assert not timestep.terminated.any()
    assert touched > 0


@pytest.mark.parametrize(
    ("scenario", "reach"),
    [("simple_spread", 0.8), ("simple_reference", 0.8), ("simple_speaker_listener", 1.0)],
)
def test_landmarks_start_within_their_range(scenario, reach):
    env = jmarl.make(f"mpe/{scenario}", dialect="onpolicy")
    state, _ = jax.jit(env.reset, static_argnums=1)(jax.random.key(0), 4000)
    np.testing.assert_allclose(jnp.abs(state.world.landmarks).max(), reach, atol=1e-3)
    np.testing.assert_allclose(jnp.abs(state.world.pos).max(), 1.0, atol=1e-3)


def test_shared_reward_is_twice_the_mpe2_sum_less_three_per_step():
    """With three agents, landmarks and ρ = ½: -3D - 2p - 3 = 2·(-1.5D - p) - 3."""
    ours, theirs = SimpleSpread(), SimpleSpread(dialect="onpolicy")
    world = ours.start(jax.random.split(jax.random.key(0), 500))
    world = world.replace(pos=0.3 * world.pos)  # crowded, so that pairs do collide
    mpe2_sum = ours.reward(world).sum(0)
    assert (np.abs(ours.reward(world)[0] - ours.reward(world)[1]) > 0.4).any()
    shared = theirs.reward(world)
    np.testing.assert_allclose(shared, np.broadcast_to(2 * mpe2_sum - 3, (3, 500)), rtol=1e-5)


def test_continuous_strengths_point_as_the_discrete_choices_do():
    moving = jmarl.make("mpe/simple_spread", dialect="onpolicy", actions="continuous")
    choosing = jmarl.make("mpe/simple_spread", dialect="onpolicy")
    state, _ = jax.jit(moving.reset, static_argnums=1)(jax.random.key(0), 5)
    choice = jnp.arange(15).reshape(5, 3) % 5
    _, one = jax.jit(moving.step)(jax.random.key(1), state, jax.nn.one_hot(choice, 5))
    _, two = jax.jit(choosing.step)(jax.random.key(1), state, choice)
    np.testing.assert_allclose(one.obs, two.obs, atol=1e-6)
