"""jmarl: multi-agent reinforcement learning as one compiled JAX program."""

import importlib
from typing import Any

from jmarl.envs.base import make

__version__ = "0.1.0"

__all__ = ["__version__", "make"]  # and train, load_policy: see below


def __getattr__(name: str) -> Any:
    """`train` and `load_policy` when first asked for: they load networks and checkpoints."""
    if name == "train":
        return importlib.import_module("jmarl.train")
    if name == "load_policy":
        return importlib.import_module("jmarl.trained").load_policy
    raise AttributeError(f"module 'jmarl' has no attribute {name!r}")
