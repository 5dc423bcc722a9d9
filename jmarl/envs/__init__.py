"""Environments. `make("mpe/simple_spread")` builds one."""

from jmarl.envs.base import Env, EnvSpec, Team, make

__all__ = ["Env", "EnvSpec", "Team", "make"]
