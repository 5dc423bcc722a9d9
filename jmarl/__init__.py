"""jmarl: multi-agent reinforcement learning as one compiled JAX program."""

from jmarl.envs.base import make

__version__ = "0.1.0"

__all__ = ["__version__", "make"]
