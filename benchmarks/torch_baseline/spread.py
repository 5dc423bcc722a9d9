"""simple_spread for many worlds as tensors, with the rules of mpe2.

E worlds, N agents and as many landmarks. All episodes start together and have the same length, so
all worlds are truncated at the same step.
"""

from typing import NamedTuple, Protocol

import torch
from torch.nn.functional import softplus

NUM_ACTIONS = 5  # stay, left, right, down, up
EPISODE_LENGTH = 25
DT = 0.1
DAMPING = 0.25
ACCELERATION = 5.0
REACH = 0.3  # two radii: closer agents touch
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 1e-3
LOCAL_RATIO = 0.5
MESSAGE_SIZE = 2  # agents are silent, but observe each other's zeros


class Step(NamedTuple):
    obs: torch.Tensor  # [E, N, O]; after the end of an episode, that of the next
    reward: torch.Tensor  # [E, N]
    truncated: bool  # of all worlds
    final_obs: torch.Tensor | None  # the last observation of an ended episode


class Worlds(Protocol):
    num_envs: int
    num_agents: int
    obs_size: int

    def reset(self) -> torch.Tensor: ...

    def step(self, action: torch.Tensor) -> Step:
        """`action` [E, N]. The next step may overwrite the returned tensors."""
        ...

    def close(self) -> None: ...


def observation_size(num_agents: int) -> int:
    """Own velocity and position; landmarks, other agents and their messages."""
    return 4 + 2 * num_agents + (2 + MESSAGE_SIZE) * (num_agents - 1)


class VectorisedSpread:
    """Positions are [E, N, 2]."""

    def __init__(
        self, num_envs: int, num_agents: int, seed: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self.num_envs, self.num_agents = num_envs, num_agents
        self.obs_size = observation_size(num_agents)
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(seed)
        ways = [[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]]
        self.thrust = torch.tensor(ways, dtype=dtype) * ACCELERATION * DT
        # Far from itself, an agent neither touches nor pushes itself.
        self.identity = torch.eye(num_agents, dtype=dtype)
        pairs = range(num_agents * num_agents)
        self.others = torch.tensor([k for k in pairs if k // num_agents != k % num_agents])
        self.silence = torch.zeros(
            num_envs, num_agents, MESSAGE_SIZE * (num_agents - 1), dtype=dtype
        )
        self.steps = 0

    def reset(self) -> torch.Tensor:
        shape = (2, self.num_envs, self.num_agents, 2)
        places = torch.rand(shape, generator=self.generator, dtype=self.dtype) * 2 - 1
        return self.place(places[0], torch.zeros_like(places[0]), places[1])

    def place(self, pos: torch.Tensor, vel: torch.Tensor, landmarks: torch.Tensor) -> torch.Tensor:
        """Start an episode with these positions; returns the observations."""
        self.pos, self.vel, self.landmarks = pos, vel, landmarks
        self.steps = 0
        self._look()
        return self._observe()

    def step(self, action: torch.Tensor) -> Step:
        self._move(action)
        self._look()
        self.steps += 1
        obs, reward = self._observe(), self._reward()
        if self.steps < EPISODE_LENGTH:
            return Step(obs, reward, False, None)
        return Step(self.reset(), reward, True, obs)

    def close(self) -> None:
        pass

    def _move(self, action: torch.Tensor) -> None:
        """x ← x + v·dt, then v ← (1-damping)·v + F·dt; masses are 1.

        Contact: F = c·k·log(1 + exp((reach - d) / k)) along the line between two agents."""
        depth = softplus(REACH - self.distance, beta=1 / CONTACT_MARGIN, threshold=40)
        push = (depth / self.distance).mul_(-CONTACT_FORCE * DT)
        force = (push.unsqueeze(-1) * self.towards).sum(2)
        self.pos = self.pos.add(self.vel, alpha=DT)
        self.vel = force.add_(self.vel, alpha=1 - DAMPING).add_(self.thrust[action])

    def _look(self) -> None:
        """Relative positions of everything for every agent."""
        own = self.pos.unsqueeze(2)
        self.towards = self.pos.unsqueeze(1) - own  # [E, N, N, 2]
        self.distance = torch.linalg.vector_norm(self.towards, dim=-1) + self.identity
        self.to_landmark = self.landmarks.unsqueeze(1) - own  # [E, N, L, 2]

    def _observe(self) -> torch.Tensor:
        shape = (self.num_envs, self.num_agents, -1)
        others = self.towards.flatten(1, 2).index_select(1, self.others)
        parts = (self.vel, self.pos, self.to_landmark.reshape(shape), others.view(shape))
        return torch.cat((*parts, self.silence), dim=-1)

    def _reward(self) -> torch.Tensor:
        """r_i = -½ Σ_landmarks distance of the nearest agent - ½ others that i touches."""
        away = torch.linalg.vector_norm(self.to_landmark, dim=-1).amin(1).sum(1, keepdim=True)
        bumps = (self.distance < REACH).sum(2)
        return away.mul_(LOCAL_RATIO - 1).sub(bumps, alpha=LOCAL_RATIO)
