"""jmarl: multi-agent reinforcement learning as one compiled JAX program."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jmarl.envs.base import make

__version__ = "0.1.0"

__all__ = ["__version__", "make"]  # and train, load_policy: see below


def __getattr__(name: str) -> Any:
    """When first asked for: `make` loads jax, `train` and `load_policy` networks and checkpoints.
    Commands that only read files need none of it."""
    if name == "make":
        return importlib.import_module("jmarl.envs.base").make
    if name == "train":
        return importlib.import_module("jmarl.train")
    if name == "load_policy":
        return importlib.import_module("jmarl.trained").load_policy
    raise AttributeError(f"module 'jmarl' has no attribute {name!r}")
