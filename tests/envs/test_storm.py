"""STORM through the adapter's dictionaries."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jmarl
from jmarl.envs.adapters import storm
from jmarl.envs.adapters.jaxmarl import JaxMarlWorld, _decided
from jmarl.envs.adapters.storm import Storm

N, SIDE, CHANNELS, CARRIED = 2, 5, 3, 4
IMAGES = np.random.default_rng(0).integers(0, 2, (N, SIDE, SIDE, CHANNELS)).astype(np.float32)
INVENTORY = np.arange(N * CARRIED, dtype=np.int8).reshape(N, CARRIED)  # a row for each agent
STATE = jnp.zeros(())
# what the three worlds return, as JaxMARL has it
FORMS = {
    "storm": {"observations": IMAGES, "inventory": INVENTORY.T},
    "storm_2p": tuple(
        {"observation": image, "inventory": carried}
        for image, carried in zip(IMAGES, INVENTORY, strict=True)
    ),
    "storm_np": IMAGES,
}


class Discrete(SimpleNamespace):
    """As JaxMARL's."""

    def __init__(self, n):
        super().__init__(n=n)


class Theirs:
    """A world whose reward is the actions, and whose episode is over."""

    num_agents, num_inner_steps, num_outer_steps = N, 7, 3
    action_spaces = {0: Discrete(3), 1: Discrete(5)}  # noqa: RUF012

    def __init__(self, seen):
        self.seen = jax.tree.map(jnp.asarray, seen)

    def reset(self, key):
        return self.seen, STATE

    def step_env(self, key, state, actions):
        reward = jnp.array([actions[0], actions[1]]) * 1.0
        return self.seen, state, reward, {"__all__": jnp.array(True)}, {}


@pytest.mark.parametrize("name", FORMS)
def test_agents_have_names_and_see_what_they_carry_in_every_cell(name):
    env = Storm(Theirs(FORMS[name]))
    assert env.agents == ["agent_0", "agent_1"]
    assert env.max_steps == 21
    assert env.action_space("agent_1").n == 5
    key, actions = jax.random.key(0), {"agent_0": jnp.array(3), "agent_1": jnp.array(4)}
    seen, after, reward, done, _ = env.step_env(key, STATE, actions)
    assert after is STATE
    assert {agent: float(r) for agent, r in reward.items()} == {"agent_0": 3, "agent_1": 4}
    assert done == {"agent_0": True, "agent_1": True, "__all__": True}
    for views in (seen, env.reset(key)[0]):
        for i, agent in enumerate(env.agents):
            np.testing.assert_array_equal(views[agent][..., :CHANNELS], IMAGES[i])
            if name == "storm_np":
                assert views[agent].shape[-1] == CHANNELS
            else:
                assert (np.asarray(views[agent])[..., CHANNELS:] == INVENTORY[i]).all()


def test_time_ends_a_game_of_everyone_for_himself():
    env = Storm(Theirs(FORMS["storm_2p"]))
    world = JaxMarlWorld("storm_2p", env, _decided("storm_2p", env))
    assert [team.agents for team in world.spec.teams] == [(0,), (1,)]
    assert world.spec.episode_length == 21
    assert world.spec.obs_shape == (SIDE, SIDE, CHANNELS + CARRIED)
    _, result = world.step(jax.random.key(0), STATE, jnp.array([1, 2]))
    np.testing.assert_array_equal(result.reward, [1, 2])
    assert result.truncated
    assert not result.terminated.any()


def test_two_players_are_two():
    with pytest.raises(ValueError, match="num_agents=3 is refused: jaxmarl/storm_2p is for two"):
        jmarl.make("jaxmarl/storm_2p", num_agents=3)


def test_a_world_whose_observations_nobody_translates_is_refused(monkeypatch, foreign):
    monkeypatch.setattr(storm, "WORLDS", ())
    seen = "'inventory', 'observations', not one array per agent"
    with pytest.raises(ValueError, match=f"jaxmarl/storm is not supported: .* {seen}"):
        jmarl.make("jaxmarl/storm")
