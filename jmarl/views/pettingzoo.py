"""One world as a PettingZoo `ParallelEnv`."""

from typing import Any

import numpy as np
from pettingzoo import ParallelEnv

from jmarl.envs.base import Env
from jmarl.envs.by_agent import joint_action, own_mask, own_obs
from jmarl.views.gymnasium_spaces import action_space, vector_space
from jmarl.views.worlds import Worlds

ByAgent = dict[str, Any]


class ParallelWorld(ParallelEnv):
    """Agents whose episode ended leave `agents`; the others wait for them to end. Where legal
    actions vary, an agent's info holds them as `action_mask`."""

    render_mode = None

    def __init__(self, env: Env) -> None:
        self.spec = spec = env.spec
        self.metadata = {"name": spec.name, "render_modes": []}
        self.possible_agents, self.agents = list(spec.agents), []
        self.observation_spaces = dict(
            zip(spec.agents, map(vector_space, spec.obs_sizes), strict=True)
        )
        self.action_spaces = dict(
            zip(spec.agents, map(action_space, spec.action_spaces), strict=True)
        )
        self._nothing = {
            agent: np.zeros_like(s.sample()) for agent, s in self.action_spaces.items()
        }
        self.state_space = vector_space(spec.state_size)
        self._world = Worlds(env, 1)
        self._global_state = np.zeros(spec.state_size)

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ByAgent, ByAgent]:
        """Without a seed, episodes go on from the last one given. No options are known."""
        del options
        timestep = self._world.reset(seed)
        self.agents = list(self.possible_agents)
        return self._seen(timestep.obs, timestep.state, timestep.action_mask)

    def step(
        self, actions: ByAgent
    ) -> tuple[ByAgent, ByAgent, dict[str, bool], dict[str, bool], ByAgent]:
        if not self.agents:
            raise ValueError(f"the episode of {self.spec.name} is over: call reset() first.")
        acting, timestep = self.agents, self._world.step(self._joint(actions))
        seen = self._seen(timestep.final_obs, timestep.final_state, timestep.final_action_mask)
        obs, infos = ({agent: part[agent] for agent in acting} for part in seen)
        place = {agent: i for i, agent in enumerate(self.possible_agents)}
        reward = {agent: float(timestep.reward[0, place[agent]]) for agent in acting}
        terminated = {agent: bool(timestep.terminated[0, place[agent]]) for agent in acting}
        over, cut = bool(timestep.over[0]), bool(timestep.truncated[0])
        truncated = {agent: cut and not terminated[agent] for agent in acting}
        self.agents = [] if over else [agent for agent in acting if not terminated[agent]]
        return obs, reward, terminated, truncated, infos

    def state(self) -> np.ndarray:
        """The global state, as a central critic reads it."""
        return self._global_state

    def render(self) -> None:
        """Nothing: `python -m jmarl.render` draws trained policies."""

    def _joint(self, actions: ByAgent) -> np.ndarray:
        """`[1, N, …]`; agents that are out do nothing."""
        for agent in self.agents:
            if agent not in actions:
                raise ValueError(f"step() needs an action for {agent!r}.")
            if not self.action_spaces[agent].contains(actions[agent]):
                raise ValueError(
                    f"action {actions[agent]!r} of {agent!r} is not in {self.action_spaces[agent]}."
                )
        chosen = {agent: np.asarray(actions[agent]) for agent in self.agents}
        return joint_action(self.spec, self._nothing | chosen)[None]

    def _seen(self, obs: Any, state: Any, mask: Any) -> tuple[ByAgent, ByAgent]:
        """Observations and infos of all agents."""
        self._global_state = state[0]
        infos: ByAgent = {agent: {} for agent in self.possible_agents}
        if self.spec.varying_action_mask:
            infos = {
                agent: {"action_mask": own.astype(np.int8)}
                for agent, own in own_mask(self.spec, mask[0]).items()
            }
        return own_obs(self.spec, obs[0]), infos
