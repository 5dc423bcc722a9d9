"""A world as PettingZoo's ParallelEnv."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

import jmarl
from jmarl.views.pettingzoo import ParallelWorld

pytestmark = pytest.mark.filterwarnings("ignore:.*Box observation space:UserWarning")


def test_pettingzoo_s_own_tests_pass(capsys):
    """Unlike agents: two teams, who see and do different things."""
    parallel_api_test(ParallelWorld(jmarl.make("mpe/simple_world_comm")), num_cycles=60)
    parallel_seed_test(
        lambda: ParallelWorld(jmarl.make("mpe/simple_speaker_listener", actions="continuous")), 30
    )
    assert "Passed" in capsys.readouterr().out


def split(keys):
    """Keys of the next steps, and of this one."""
    pairs = jax.vmap(jax.random.split)(keys)
    return pairs[:, 0], pairs[:, 1]


def test_numbers_are_those_of_the_native_interface():
    env = jmarl.make("mpe/simple_speaker_listener", episode_length=4)
    world, spec = ParallelWorld(env), env.spec
    key = jax.random.key(5)[None]
    key, own = split(key)
    state, timestep = env.reset(own, 1)
    obs, _ = world.reset(seed=5)
    step = jax.jit(env.step)
    for t in range(4):
        for i, (agent, size) in enumerate(zip(spec.agents, spec.obs_sizes, strict=True)):
            np.testing.assert_array_equal(obs[agent], timestep.final_obs[0, i, :size])
            assert world.observation_space(agent).contains(obs[agent])
        np.testing.assert_array_equal(world.state(), timestep.final_state[0])
        actions = {agent: (t + i) % 3 for i, agent in enumerate(spec.agents)}
        key, own = split(key)
        state, timestep = step(own, state, jnp.array([[actions[agent] for agent in spec.agents]]))
        obs, reward, terminated, truncated, _ = world.step(actions)
        np.testing.assert_array_equal(list(reward.values()), timestep.reward[0])
        assert set(truncated.values()) == {t == 3}
        assert not any(terminated.values())
    assert world.agents == []
    with pytest.raises(ValueError, match=r"call reset\(\) first"):
        world.step(actions)


def test_agents_that_end_early_leave_alone():
    world = ParallelWorld(jmarl.make("probe/death"))
    world.reset(seed=0)
    everybody, gone = list(world.agents), []
    while world.agents:
        acting = list(world.agents)
        _, reward, terminated, truncated, _ = world.step(dict.fromkeys(acting, 0))
        assert list(reward) == list(truncated) == acting
        assert set(world.agents) <= {agent for agent in acting if not terminated[agent]}
        gone.append(set(acting) - set(world.agents))
    first = next(left for left in gone if left)
    assert first < set(everybody)  # some, not all


@pytest.mark.parametrize(
    ("actions", "message"),
    [({"agent_0": 0}, "needs an action for 'agent_1'"), ({"agent_0": 9}, "9 of 'agent_0' is not")],
)
def test_bad_actions_are_refused(actions, message):
    world = ParallelWorld(jmarl.make("mpe/simple_spread", num_agents=2))
    world.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        world.step(actions)
