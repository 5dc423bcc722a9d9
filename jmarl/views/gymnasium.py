"""Worlds of one agent as a Gymnasium environment, or as a vector of them."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from jmarl.envs.base import Env, EnvSpec
from jmarl.errors import ConfigError
from jmarl.types import TimeStep
from jmarl.views.gymnasium_spaces import action_space, vector_space
from jmarl.views.worlds import Worlds

Info = dict[str, Any]


class SingleWorld(gymnasium.Env):
    """One world."""

    metadata = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)
    render_mode = None

    def __init__(self, env: Env) -> None:
        self._spec = _of_one_agent(env)
        self.observation_space, self.action_space = _spaces(self._spec)
        self._world = Worlds(env, 1)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Without a seed, episodes go on from the last one given. No options are known."""
        super().reset(seed=seed, options=options)
        timestep = self._world.reset(seed)
        return timestep.obs[0, 0], _info(self._spec, timestep.action_mask[0])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        timestep = self._world.step(np.asarray(action)[None, None])
        info = _info(self._spec, timestep.final_action_mask[0])
        reward, terminated = float(timestep.reward[0, 0]), bool(timestep.terminated[0, 0])
        return timestep.final_obs[0, 0], reward, terminated, bool(timestep.truncated[0]), info


class VectorOfWorlds(VectorEnv):
    """Many worlds as one compiled program. A world whose episode ends begins the next one in the
    same step; its last observation is in `infos["final_obs"]`."""

    metadata = {  # noqa: RUF012 (as Gymnasium declares it)
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, env: Env, num_envs: int) -> None:
        self._spec, self.num_envs = _of_one_agent(env), num_envs
        self.single_observation_space, self.single_action_space = _spaces(self._spec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._world = Worlds(env, num_envs)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: Info | None = None
    ) -> tuple[Any, Info]:
        """Begin episodes in all worlds. `seed`: one per world, or the first world's, from which the
        others count up; without it, the random streams go on."""
        if options and "reset_mask" in options:
            raise ConfigError("options['reset_mask'] is not supported: worlds reset themselves.")
        if seed is not None and np.shape(seed) not in ((), (self.num_envs,)):
            raise ConfigError(
                f"seed={seed!r} is neither one number nor {self.num_envs}, one for each world."
            )
        timestep = self._world.reset(seed)
        return timestep.obs[:, 0], _info(self._spec, timestep.action_mask)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Info]:
        timestep = self._world.step(np.asarray(actions)[:, None])
        terminated, truncated = timestep.terminated[:, 0], timestep.truncated
        info = _info(self._spec, timestep.action_mask) | _final(timestep)
        return timestep.obs[:, 0], timestep.reward[:, 0], terminated, truncated, info


def _of_one_agent(env: Env) -> EnvSpec:
    if env.spec.num_agents > 1:
        raise ConfigError(
            f"{env.spec.name} has {env.spec.num_agents} agents, Gymnasium's environments have one: "
            "use jmarl.to_pettingzoo."
        )
    return env.spec


def _spaces(spec: EnvSpec) -> tuple[gymnasium.Space, gymnasium.Space]:
    return vector_space(spec.obs_size), action_space(spec.action_space)


def _info(spec: EnvSpec, mask: Any) -> Info:
    """`mask` `[…, 1, A]`"""
    return {"action_mask": mask[..., 0, :].astype(np.int8)} if spec.varying_action_mask else {}


def _final(timestep: TimeStep) -> Info:
    """The last observations of episodes that ended, and where those are."""
    over = timestep.over
    if not over.any():
        return {}
    return {"final_obs": timestep.final_obs[:, 0], "_final_obs": over}
