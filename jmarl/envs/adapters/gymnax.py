"""gymnax worlds as `gymnax/<name>`, each with one agent."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, Num, PyTree, Shaped

from jmarl.envs.base import EnvSpec, Team
from jmarl.envs.batched import Batched, StepResult, View, padded_view
from jmarl.envs.spaces import Box, Discrete, Space
from jmarl.errors import ConfigError, check_known, unknown
from jmarl.types import float_dtype


@dataclass(frozen=True)
class GymnaxWorld:
    """One gymnax world with fixed parameters."""

    name: str
    env: Any
    params: Any
    spec: EnvSpec = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", self._make_spec())

    def _make_spec(self) -> EnvSpec:
        obs, _ = jax.eval_shape(self.env.reset_env, jax.random.key(0), self.params)
        return EnvSpec(
            name=f"gymnax/{self.name}",
            agents=("agent_0",),
            teams=(Team("agents", (0,)),),
            obs_sizes=(obs.size,),
            action_spaces=(self._space(),),
            state_size=obs.size,
            episode_length=int(self.params.max_steps_in_episode),
            dialect="gymnax",
            obs_shape=obs.shape if obs.ndim == 3 else None,
        )

    def reset(self, key: Key[Array, ""]) -> tuple[PyTree, View]:
        obs, state = self.env.reset_env(key, self.params)
        return state, self._view(obs)

    def step(
        self, key: Key[Array, ""], state: PyTree, action: Num[Array, " N *entries"]
    ) -> tuple[PyTree, StepResult]:
        shape = self.env.action_space(self.params).shape
        obs, state, reward, terminated, _ = self.env.step_env(
            key, state, action[0].reshape(shape), self.params
        )
        terminated = jnp.asarray(terminated, bool).reshape(())
        truncated = jnp.asarray(self.env.is_truncated(state, self.params), bool) & ~terminated
        reward = jnp.asarray(reward, float_dtype()).reshape(1)
        return state, StepResult(self._view(obs), reward, terminated, truncated.reshape(()))

    def _view(self, obs: Shaped[Array, "..."]) -> View:
        return padded_view(self.spec, [jnp.ravel(obs).astype(float_dtype())])

    def _space(self) -> Space:
        space = self.env.action_space(self.params)
        if hasattr(space, "n"):
            return Discrete(int(space.n))
        if not hasattr(space, "low"):
            kind = type(space).__name__
            raise ConfigError(f"gymnax/{self.name} has a {kind} action space: not supported.")
        size = max(1, int(jnp.prod(jnp.array(space.shape))))
        low = jnp.broadcast_to(jnp.asarray(space.low).ravel(), (size,)).tolist()
        high = jnp.broadcast_to(jnp.asarray(space.high).ravel(), (size,)).tolist()
        return Box(tuple(low), tuple(high))


def make(name: str, world: str, options: Mapping[str, Any]) -> Batched:
    """Options: the parameters of the gymnax world, such as `max_steps_in_episode`."""
    import gymnax

    if world not in gymnax.registered_envs:
        raise unknown("environment", name, [f"gymnax/{known}" for known in gymnax.registered_envs])
    env, params = gymnax.make(world)
    check_known(f"option of {name}", options, [f.name for f in dataclasses.fields(params)])
    return Batched(GymnaxWorld(world, env, params.replace(**options)))
