"""Options of JaxMARL's worlds. Some of its classes take any keyword and ignore those that they do
not know, so jmarl compares options with the signatures, and with what came out."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from jmarl.envs.base import EnvSpec
from jmarl.envs.spaces import Box, MultiDiscrete
from jmarl.errors import ConfigError, brief, check_choice, check_float, check_known, unknown

SHAPING = "shaping"  # overcooked: how much of the world's shaped reward is added to the reward
OVERCOOKED = ("overcooked", "overcooked_v2")
KINDS = {"discrete": "Discrete", "continuous": "Continuous"}  # of particle worlds' actions


def jaxmarl_options(world: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """As JaxMARL expects them: objects instead of names of maps and layouts."""
    options = dict(options)
    actions = options.pop("actions", None)
    if world.startswith("MPE_") and actions in KINDS:
        options["action_type"] = KINDS[actions]
    if "SMAX" in world and "map_name" in options:
        from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO

        map_name = options.pop("map_name")
        if map_name not in MAP_NAME_TO_SCENARIO:
            raise unknown("SMAX map", str(map_name), MAP_NAME_TO_SCENARIO)
        options["scenario"] = MAP_NAME_TO_SCENARIO[map_name]
    if world in OVERCOOKED and isinstance(options.get("layout"), str):
        layouts = _layouts(world)
        if options["layout"] not in layouts:
            raise unknown(f"{world} layout", options["layout"], layouts)
        options["layout"] = layouts[options["layout"]]
    if world == "overcooked_v2" and isinstance(options.get("observation_type"), str):
        check_choice("observation_type", options["observation_type"], ("default", "featurized"))
    return options


def _layouts(world: str) -> Mapping[str, Any]:
    if world == "overcooked":
        from jaxmarl.environments.overcooked.layouts import overcooked_layouts as layouts
    else:
        from jaxmarl.environments.overcooked_v2.layouts import overcooked_v2_layouts as layouts
    return layouts


def shaping(world: str, weight: Any) -> float:
    """The checked weight of shaped rewards; only overcooked has any."""
    if weight and world not in OVERCOOKED:
        raise ConfigError(
            f"{SHAPING}={brief(weight)} cannot go with {world}: it has no shaped rewards."
        )
    check_float(SHAPING, weight, 0.0, 1e6)
    return float(weight)


def check_options(name: str, env: Any, given: Mapping[str, Any]) -> None:
    """Refuse options that the world's class has not, and those that it has ignored."""
    known = sorted(set(_parameters(type(env))) | set(_parameters(type(getattr(env, "_env", None)))))
    check_known(f"option of {name}", given, known)
    for option, value in given.items():
        came_out = _plain(getattr(env, option, value))
        plain = isinstance(value, int | float | str) and isinstance(came_out, int | float | str)
        if plain and came_out != value:
            raise ConfigError(
                f"{option}={brief(value)} is ignored by {name}, where it is {brief(came_out)}."
            )


def _parameters(kind: type) -> Iterator[str]:
    """Names that a class's `__init__` takes, and those of its bases, as long as it passes unknown
    ones on to them."""
    for base in kind.__mro__[:-1]:
        if "__init__" not in vars(base):
            continue
        parameters = inspect.signature(base).parameters.values()
        yield from (each.name for each in parameters if each.kind is not each.VAR_KEYWORD)
        if all(each.kind is not each.VAR_KEYWORD for each in parameters):
            return


def _plain(value: Any) -> Any:
    """A Python number, where an array of one holds it."""
    return value.item() if getattr(value, "size", None) == 1 else value


def check_actions(spec: EnvSpec, asked: str | None) -> None:
    """Refuse a kind of actions that did not come out."""
    kinds = {Box: "continuous", MultiDiscrete: "multidiscrete"}
    kind = kinds.get(type(spec.action_space), "discrete")
    if asked not in (None, kind):
        raise ConfigError(f"actions={brief(asked)} is not possible: {spec.name} has {kind} ones.")
