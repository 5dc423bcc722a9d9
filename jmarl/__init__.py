"""jmarl: multi-agent reinforcement learning as one compiled JAX program."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jmarl.api import load_policy, make, train

__version__ = "0.1.0"

__all__ = ["__version__", "load_policy", "make", "train"]

# Each loads only what it needs: `make` no trainer, and commands that only read files no jax.
_HOMES = {
    "load_policy": "jmarl.evaluation.trained_policy",
    "make": "jmarl.envs.base",
    "train": "jmarl.api",
}


def __getattr__(name: str) -> Any:
    """Import public functions when they are first asked for."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'jmarl' has no attribute {name!r}")
