"""A world as PettingZoo's ParallelEnv."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

import jmarl
from jmarl.envs.by_agent import joint_action
from jmarl.envs.mpe import SCENARIOS
from jmarl.views.pettingzoo import ParallelWorld
from tests.support.long import all_but_long

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Box observation space:UserWarning"),
    pytest.mark.usefixtures("unwatched"),  # one key chooses and steps
]


@pytest.mark.parametrize("scenario", all_but_long(SCENARIOS, "simple_tag", "simple_crypto"))
def test_pettingzoo_s_own_tests_pass(scenario, capsys):
    """And numbers are those of the native interface."""
    env = jmarl.make(f"mpe/{scenario}", episode_length=4)
    parallel_api_test(ParallelWorld(env), num_cycles=10)
    assert "Passed" in capsys.readouterr().out
    parallel_seed_test(lambda: ParallelWorld(env), 5)
    same_as_native(env)


def split(keys):
    """Keys of the next steps, and of this one."""
    pairs = jax.vmap(jax.random.split)(keys)
    return pairs[:, 0], pairs[:, 1]


def same_as_native(env):
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
        spaces = zip(spec.agents, spec.action_spaces, strict=True)
        key, own = split(key)
        actions = {agent: np.asarray(space.sample(own[0], ())) for agent, space in spaces}
        state, timestep = step(own, state, jnp.asarray(joint_action(spec, actions))[None])
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
