"""Gymnasium's spaces of an agent's actions and observations."""

import gymnasium
import numpy as np

from jmarl.envs.spaces import Box, MultiDiscrete, Space
from jmarl.types import float_dtype


def action_space(space: Space) -> gymnasium.Space:
    if isinstance(space, Box):
        low, high = (np.array(side, np.float32) for side in (space.low, space.high))
        return gymnasium.spaces.Box(low, high)
    if isinstance(space, MultiDiscrete):
        return gymnasium.spaces.MultiDiscrete(list(space.nvec))
    return gymnasium.spaces.Discrete(space.n)


def vector_space(size: int) -> gymnasium.spaces.Box:
    """Of observations and global states."""
    return gymnasium.spaces.Box(-np.inf, np.inf, (size,), float_dtype())
