"""One world through JaxMARL's interface: dictionaries by agent, to be vmapped by its user.

A vmapped step is one step of a batch of worlds: a batching rule gives all worlds to the `Env` at
once, which is what it is fast at.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, PyTree

from jmarl.envs.adapters.jaxmarl import import_jaxmarl
from jmarl.envs.base import Env
from jmarl.envs.by_agent import joint_action, own_mask, own_obs
from jmarl.envs.spaces import Box, MultiDiscrete, Space
from jmarl.errors import ConfigError
from jmarl.types import TimeStep
from jmarl.views.merged_batches import merged_batches

import_jaxmarl()  # without the banner that its modules print
from jaxmarl.environments import spaces as jaxmarl_spaces  # noqa: E402
from jaxmarl.environments.multi_agent_env import MultiAgentEnv  # noqa: E402

ByAgent = dict[str, Array]
BATCH = "__all__"  # JaxMARL's key of what is so for all agents


class State(struct.PyTreeNode):
    """Of one world."""

    env: PyTree  # of a batch of one
    action_mask: Bool[Array, "N A"] | None  # None: it never changes


class JaxMarlView(MultiAgentEnv):
    """A jmarl world as JaxMARL's scripts and wrappers use them. As there, `step` resets a world
    whose episode ends, and its observations are then the first of the next episode."""

    def __init__(self, env: Env) -> None:
        self.spec = spec = env.spec
        self.num_agents, self.agents = spec.num_agents, list(spec.agents)
        self.observation_spaces = {
            agent: jaxmarl_spaces.Box(-jnp.inf, jnp.inf, (size,))
            for agent, size in zip(spec.agents, spec.obs_sizes, strict=True)
        }
        self.action_spaces = {
            agent: _space(space)
            for agent, space in zip(spec.agents, spec.action_spaces, strict=True)
        }
        self._reset_batch, self._step_batch = merged_batches(env)

    @partial(jax.jit, static_argnums=0)
    def reset(self, key: Array) -> tuple[ByAgent, State]:
        state, timestep = self._reset_batch(_typed(key)[None])
        return own_obs(self.spec, timestep.obs[0]), self._state(state, timestep)

    @partial(jax.jit, static_argnums=0)
    def step(
        self, key: Array, state: State, actions: ByAgent, reset_state: None = None
    ) -> tuple[ByAgent, State, ByAgent, ByAgent, dict[str, Any]]:
        if reset_state is not None:
            raise ConfigError("reset_state is not supported: worlds reset themselves.")
        action = joint_action(self.spec, {agent: jnp.asarray(a) for agent, a in actions.items()})
        after, timestep = self._step_batch(_typed(key)[None], state.env, action[None])
        done = timestep.terminated[0] | timestep.truncated[0]
        rewards = dict(zip(self.agents, timestep.reward[0], strict=True))
        dones = dict(zip(self.agents, done, strict=True)) | {BATCH: timestep.over[0]}
        obs = own_obs(self.spec, timestep.obs[0])
        return obs, self._state(after, timestep), rewards, dones, {}

    @partial(jax.jit, static_argnums=0)
    def get_avail_actions(self, state: State) -> ByAgent:
        mask = self.spec.action_mask if state.action_mask is None else state.action_mask
        return own_mask(self.spec, jnp.asarray(mask))

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        """Agents by team."""
        return {team.name: [self.agents[i] for i in team.agents] for team in self.spec.teams}

    def _state(self, env: PyTree, timestep: TimeStep) -> State:
        return State(env, timestep.action_mask[0] if self.spec.varying_action_mask else None)


def _space(space: Space) -> Any:
    if isinstance(space, Box):
        low, high = jnp.asarray(space.low), jnp.asarray(space.high)
        return jaxmarl_spaces.Box(low, high, space.shape)
    if isinstance(space, MultiDiscrete):
        return jaxmarl_spaces.MultiDiscrete(space.nvec)
    return jaxmarl_spaces.Discrete(space.n)


def _typed(key: Array) -> Array:
    """JaxMARL's scripts make keys with `jax.random.PRNGKey`."""
    is_typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return key if is_typed else jax.random.wrap_key_data(key)
