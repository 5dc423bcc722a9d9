"""Worlds that other libraries step on the host, in numpy, each as a Gymnasium environment whose
observation holds everything about all of its agents. Gymnasium's vector environments step many of
them, in this process or in workers."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from jmarl.envs.base import EnvSpec
from jmarl.envs.by_agent import joint_mask, joint_obs, own_action

ByAgent = dict[str, Any]
MASK = "action_mask"  # PettingZoo's key of legal actions, in observations or infos


class HostWorld(Protocol):
    """One world with dictionaries by agent. Agents that are out are absent from them."""

    spec: EnvSpec

    def reset(self, seed: int) -> tuple[ByAgent, ByAgent]:
        """Observations `[O_i]` and, where legal actions vary, their masks."""
        ...

    def step(self, actions: ByAgent) -> "HostStep": ...

    def close(self) -> None: ...


class HostStep:
    """What a step of one world led to."""

    def __init__(
        self, obs: ByAgent, masks: ByAgent, reward: ByAgent, terminated: ByAgent, truncated: ByAgent
    ) -> None:
        self.obs, self.masks, self.reward = obs, masks, reward
        self.terminated, self.truncated = terminated, truncated


class JointWorld(gymnasium.Env):
    """A world as one observation, `view_space`, and one padded joint action."""

    metadata = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, make: Callable[[], HostWorld]) -> None:
        self._world = make()
        self._spec = spec = self._world.spec
        self.observation_space = view_space(spec)
        shape = (spec.num_agents, *spec.action_space.shape)
        self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float64)
        self._out = np.zeros(spec.num_agents, bool)  # agents that are out of the episode
        self._terminated = self._out

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[ByAgent, ByAgent]:
        super().reset(seed=seed, options=options)
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        self._out = self._terminated = np.zeros(self._spec.num_agents, bool)
        return self._view(*self._world.reset(drawn), {}), {}

    def step(self, action: np.ndarray) -> tuple[ByAgent, float, bool, bool, ByAgent]:
        acting = [agent for agent, out in zip(self._spec.agents, self._out, strict=True) if not out]
        chosen = own_action(self._spec, action)
        done = self._world.step({agent: chosen[agent] for agent in acting})
        terminated = self._flags(done.terminated)
        self._terminated = self._terminated | terminated
        self._out = self._out | terminated | self._flags(done.truncated)
        over = bool(self._out.all())
        ended = bool(self._terminated.all())
        view = self._view(done.obs, done.masks, done.reward)
        return view, 0.0, ended, over and not ended, {}

    def close(self) -> None:
        self._world.close()

    def _flags(self, by_agent: ByAgent) -> np.ndarray:
        return np.array([bool(by_agent.get(agent, False)) for agent in self._spec.agents])

    def _view(self, obs: ByAgent, masks: ByAgent, reward: ByAgent) -> ByAgent:
        spec = self._spec
        nothing = {spec.agents[0]: np.zeros(spec.obs_sizes[0])}
        mask = joint_mask(spec, masks) if masks else spec.action_mask
        return {
            "obs": joint_obs(spec, obs or nothing),
            "action_mask": mask.astype(np.int8),
            "active": (~self._out).astype(np.int8),
            "terminated": self._terminated.astype(np.int8),
            "reward": np.array([float(reward.get(agent, 0.0)) for agent in spec.agents]),
        }


def view_space(spec: EnvSpec) -> gymnasium.spaces.Dict:
    n = spec.num_agents
    real = {"obs": (n, spec.obs_size), "reward": (n,)}
    flags = {"action_mask": spec.action_mask.shape, "active": (n,), "terminated": (n,)}
    spaces: dict[str, gymnasium.Space] = {
        name: gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float64)
        for name, shape in real.items()
    }
    spaces |= {name: gymnasium.spaces.MultiBinary(shape) for name, shape in flags.items()}
    return gymnasium.spaces.Dict(spaces)


def make_vector(make: Callable[[], HostWorld], count: int, processes: bool) -> VectorEnv:
    """`count` worlds, stepped in this process or in one of their own each. The arrays that it
    returns are its own, into which the next step writes."""
    makers = [lambda: JointWorld(make)] * count
    given: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP, "copy": False}
    if not processes:
        return SyncVectorEnv(makers, **given)
    # a fork would copy the locks of jax's threads
    return AsyncVectorEnv(makers, context="spawn", **given)


def final_views(views: Mapping[str, np.ndarray], infos: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """What a step led to, before any reset: of worlds that have ended, in `infos`."""
    final = {name: np.array(value) for name, value in views.items()}
    for world in np.flatnonzero(infos.get("_final_obs", np.zeros(0, bool))):
        for name, value in infos["final_obs"][world].items():
            final[name][world] = value
    return final
