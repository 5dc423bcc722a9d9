"""From a world to its view in another library."""

import importlib
from typing import Any

from jmarl.envs.base import Env
from jmarl.errors import ConfigError

# the library's module → how to install it, where jmarl's own dependencies do not
EXTRAS = {"pettingzoo": 'pip install "jmarl[pettingzoo]"', "gymnasium": "pip install gymnasium"}


def to_pettingzoo(env: Env) -> Any:
    """One world as a PettingZoo `ParallelEnv`: dictionaries of numpy arrays by agent."""
    return _view("pettingzoo", env).ParallelWorld(env)


def to_gymnasium(env: Env, num_envs: int | None = None) -> Any:
    """Worlds of one agent as a Gymnasium `VectorEnv` of `num_envs`; without that number, one world
    as an `Env`."""
    views = _view("gymnasium", env)
    return views.SingleWorld(env) if num_envs is None else views.VectorOfWorlds(env, num_envs)


def to_jaxmarl(env: Env) -> Any:
    """One world with JaxMARL's interface, for `jax.vmap`: a script for JaxMARL runs on it."""
    return _view("jaxmarl", env).JaxMarlView(env)


def _view(library: str, env: Any) -> Any:
    if not hasattr(env, "spec") or not hasattr(env, "step"):
        raise ConfigError(
            f"{type(env).__name__} is not a world of jmarl: make one with jmarl.make, such as "
            'jmarl.make("mpe/simple_spread").'
        )
    try:
        return importlib.import_module(f"jmarl.views.{library}")
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise ConfigError(
            f"this view needs {error.name}, which is not installed: {EXTRAS[error.name]}."
        ) from None
