"""MuJoCo Playground worlds as `playground/<name>` and Brax worlds as `brax/<name>`.

Both have `reset(key) -> state` and `step(state, action) -> state` with `obs`, `reward` and `done`,
where `done` means termination. This adapter adds the time limit.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int, Key, PyTree, Shaped

from jmarl.envs.base import EnvSpec, Team
from jmarl.envs.batched import Batched, StepResult, View, padded_view
from jmarl.envs.spaces import Box
from jmarl.errors import ConfigError, check_int, check_known, unknown
from jmarl.types import float_dtype

BRAX_EPISODE_LENGTH = 1000
MODULES = {"playground": "mujoco_playground", "brax": "brax"}  # by extra


class TimedState(struct.PyTreeNode):
    world: PyTree
    step: Int[Array, ""]


@dataclass(frozen=True)
class BraxWorld:
    """One world with Brax's interface and a time limit."""

    name: str
    env: Any
    episode_length: int
    spec: EnvSpec = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", self._make_spec())

    def _make_spec(self) -> EnvSpec:
        obs = jax.eval_shape(self.env.reset, jax.random.key(0)).obs
        if not hasattr(obs, "size"):
            raise ConfigError(f"{self.name} does not return one observation vector.")
        return EnvSpec(
            name=self.name,
            agents=("agent_0",),
            teams=(Team("agents", (0,)),),
            obs_sizes=(obs.size,),
            action_spaces=(Box.uniform(-1.0, 1.0, self.env.action_size),),
            state_size=obs.size,
            episode_length=self.episode_length,
            dialect=self.name.partition("/")[0],
        )

    def reset(self, key: Key[Array, ""]) -> tuple[TimedState, View]:
        world = self.env.reset(key)
        return TimedState(world, jnp.zeros((), jnp.int32)), self._view(world.obs)

    def step(
        self, key: Key[Array, ""], state: TimedState, action: Float[Array, "N D"]
    ) -> tuple[TimedState, StepResult]:
        del key  # the state of these worlds contains a key
        world = self.env.step(state.world, action[0])
        state = TimedState(world, state.step + 1)
        terminated = jnp.asarray(world.done, bool)
        truncated = (state.step >= self.episode_length) & ~terminated
        reward = jnp.asarray(world.reward, float_dtype()).reshape(1)
        return state, StepResult(self._view(world.obs), reward, terminated, truncated)

    def _view(self, obs: Shaped[Array, "..."]) -> View:
        return padded_view(self.spec, [jnp.ravel(obs).astype(float_dtype())])


def require(extra: str, name: str) -> None:
    """Refuse a world whose package is not installed."""
    if refusal := missing_extra(extra, name):
        raise ConfigError(refusal)


def missing_extra(extra: str, name: str) -> str | None:
    """Which extra to install for a world; None: its package is there."""
    if importlib.util.find_spec(MODULES[extra]) is not None:
        return None
    install = f'pip install "jmarl[{extra}]"'
    return f"{name} needs the {extra!r} extra, which is not installed: {install}."


def make(name: str, world: str, options: Mapping[str, Any]) -> Batched:
    """Option: `episode_length`."""
    family = name.partition("/")[0]
    require(family, name)
    check_known(f"option of {name}", options, ["episode_length"])
    load = _load_playground if family == "playground" else _load_brax
    env, episode_length = load(name, world)
    episode_length = options.get("episode_length", episode_length)
    check_int("episode_length", episode_length, low=1)
    return Batched(BraxWorld(name, env, episode_length))


def playground_worlds() -> tuple[str, ...]:
    from mujoco_playground import registry  # pyright: ignore[reportMissingImports]

    return tuple(registry.ALL_ENVS)


def _load_playground(name: str, world: str) -> tuple[Any, int]:
    from mujoco_playground import registry  # pyright: ignore[reportMissingImports]

    worlds = playground_worlds()
    if world not in worlds:
        raise unknown("environment", name, [f"playground/{known}" for known in worlds])
    config = registry.get_default_config(world)
    # The default, warp, requires NVIDIA devices; the XLA implementation runs everywhere.
    warp = jax.default_backend() == "gpu"
    overrides = {} if warp or "impl" not in config else {"impl": "jax"}
    env = registry.load(world, config=config, config_overrides=overrides)
    return env, int(config.episode_length)


def _load_brax(name: str, world: str) -> tuple[Any, int]:
    from brax import envs  # pyright: ignore

    if world not in envs._envs:
        raise unknown("environment", name, [f"brax/{known}" for known in envs._envs])
    return envs.get_environment(world), BRAX_EPISODE_LENGTH
