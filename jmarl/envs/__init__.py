"""Worlds. Build one with `make("mpe/simple_spread", …)`."""

from jmarl.envs.base import Env, EnvSpec, Team, make

__all__ = ["Env", "EnvSpec", "Team", "make"]
