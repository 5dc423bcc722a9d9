"""jmarl: multi-agent reinforcement learning as one compiled JAX program.

    import jmarl

    outcome = jmarl.train(algorithm="ippo", env="mpe/simple_spread")  # a run in memory
    outcome.policy.act(observations)  # acts at once
    outcome.save("runs/x")  # what `python -m jmarl.train` would have written

`make_train` gives a run as a pure function for `jax.jit` and `jax.vmap`; `evaluate`, `render`,
`report`, `export` and `sweep` do what the commands of these names do; `make` builds worlds,
`list_worlds` lists them;
`to_pettingzoo`, `to_gymnasium` and `to_jaxmarl` show them to other libraries; `load_policy` and
`load_exported` load trained policies. docs/python.md shows all of them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jmarl.api import (
        Callback,
        Outcome,
        Ppo,
        Result,
        TrainedPolicy,
        TrainFunction,
        evaluate,
        export,
        list_worlds,
        load_exported,
        load_policy,
        make,
        make_train,
        render,
        report,
        sweep,
        to_gymnasium,
        to_jaxmarl,
        to_pettingzoo,
        train,
    )
    from jmarl.config.algorithms import register_algorithm
    from jmarl.config.declaration import Section, option
    from jmarl.envs.check import check_env
    from jmarl.registry import register_env

__version__ = "0.1.0"

__all__ = [
    "Callback",
    "Outcome",
    "Ppo",
    "Result",
    "Section",
    "TrainFunction",
    "TrainedPolicy",
    "__version__",
    "check_env",
    "evaluate",
    "export",
    "list_worlds",
    "load_exported",
    "load_policy",
    "make",
    "make_train",
    "option",
    "register_algorithm",
    "register_env",
    "render",
    "report",
    "sweep",
    "to_gymnasium",
    "to_jaxmarl",
    "to_pettingzoo",
    "train",
]

# These load only what they need: `make` no trainer, `load_policy` nothing that trains.
_HOMES = {
    "Callback": "jmarl.runs.callbacks",
    "Ppo": "jmarl.learning.ppo",
    "Section": "jmarl.config.declaration",
    "TrainedPolicy": "jmarl.evaluation.trained_policy",
    "check_env": "jmarl.envs.check",
    "list_worlds": "jmarl.envs.listing",
    "load_exported": "jmarl.evaluation.exported_policy",
    "load_policy": "jmarl.evaluation.trained_policy",
    "make": "jmarl.envs.base",
    "option": "jmarl.config.declaration",
    "register_algorithm": "jmarl.config.algorithms",
    "register_env": "jmarl.registry",
    "to_gymnasium": "jmarl.views.make",
    "to_jaxmarl": "jmarl.views.make",
    "to_pettingzoo": "jmarl.views.make",
}


def __getattr__(name: str) -> Any:
    """Import public names when they are first asked for."""
    if name in __all__:
        return getattr(importlib.import_module(_HOMES.get(name, "jmarl.api")), name)
    raise AttributeError(f"module 'jmarl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
