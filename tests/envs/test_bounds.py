"""Every world takes an action out of bounds for the bound, whatever the library behind it does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import jmarl
from jmarl.envs.adapters.brax import BraxWorld
from jmarl.envs.base import EnvSpec, Team
from jmarl.envs.batched import Batched
from jmarl.envs.spaces import Box, Discrete

WORLDS = 4


class Pushed(struct.PyTreeNode):
    obs: jax.Array
    reward: jax.Array
    done: jax.Array


class Brax:
    """A world with Brax's interface, which takes any action at its word."""

    action_size = 2

    def reset(self, key):
        return Pushed(jax.random.normal(key, (2,)), jnp.zeros(()), jnp.zeros(()))

    def step(self, state, action):
        return Pushed(state.obs + action, action.sum(), jnp.zeros(()))


def made(name):
    if name == "brax":
        return Batched(BraxWorld("brax/x", Brax(), 10))
    options = {
        "mpe/simple_world_comm": {"actions": "continuous"},
        "probe/context": {"actions": "continuous"},
        "jaxmarl/MPE_simple_spread_v3": {"action_type": "Continuous"},
    }
    return jmarl.make(name, **options.get(name, {}))


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(
    "name",
    [
        "mpe/simple_world_comm",
        "probe/context",
        "jaxmarl/MPE_simple_spread_v3",
        "gymnax/MountainCarContinuous-v0",
        "gymnax/Reacher-misc",
        "brax",
    ],
)
def test_fifty_does_what_the_bound_does(name):
    env = made(name)
    spec = env.spec
    state, _ = jax.jit(env.reset, static_argnums=1)(jax.random.key(0), WORLDS)
    step = jax.jit(env.step)
    sign = np.where(np.arange(spec.action_space.size) % 2, -50.0, 50.0)
    wild = jnp.broadcast_to(jnp.asarray(sign, jnp.float32), (WORLDS, *spec.action_mask.shape))
    low, high = (np.where(spec.action_mask, side, 0) for side in (-1.0, 1.0))
    if name.startswith(("mpe", "probe", "jaxmarl")):
        low = 0 * low
    at_bounds = jnp.asarray(np.where(sign > 0, high, low), jnp.float32)
    tame = jnp.broadcast_to(at_bounds[None], wild.shape)
    given = [step(jax.random.key(1), state, action)[1] for action in (wild, tame, tame / 2)]
    there, expected, other = ((x.final_obs, x.reward) for x in given)
    for ours, theirs in zip(there, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not all(np.array_equal(*pair) for pair in zip(there, other, strict=True))


def unlike_agents():
    spaces = (Box((-1.0, 0.0, -np.inf), (1.0, 2.0, 3.0)), Box((-5.0,), (4.0,)))
    team = Team("all", (0, 1))
    return EnvSpec("x", ("a", "b"), (team,), (1, 1), spaces, 2, None, "x")


def test_every_agent_has_its_own_bounds_and_padding_is_zero():
    spec = unlike_agents()
    low, high = spec.action_bounds
    np.testing.assert_array_equal(low, [[-1, 0, -np.inf], [-5, 0, 0]])
    np.testing.assert_array_equal(high, [[1, 2, 3], [4, 0, 0]])
    action = jnp.array([[[-9.0, 9.0, -9.0], [-9.0, 9.0, -9.0]], [[0.5, 1.5, 2.5], [3.5, 0.0, 0.0]]])
    clipped = spec.clip(action)
    np.testing.assert_array_equal(clipped[0], [[-1, 2, -9], [-5, 0, 0]])
    np.testing.assert_array_equal(clipped[1], action[1])
    assert clipped.dtype == action.dtype


def test_choices_are_not_clipped():
    spec = EnvSpec("x", ("a",), (Team("all", (0,)),), (1,), (Discrete(3),), 1, None, "x")
    action = jnp.array([[7]])
    assert spec.clip(action) is action
