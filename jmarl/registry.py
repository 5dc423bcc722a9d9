"""Names of algorithms and worlds, built-in ones and those of plug-ins, and what makes each.

What is built in is named by a string, "module:attribute", which is imported when it is first used.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jmarl.errors import ConfigError, brief
from jmarl.literals import CriticInput, Ratio

Maker = Callable[..., Any] | str  # or "module:attribute"


@dataclass(frozen=True)
class AlgorithmFacts:
    """What options that are None mean for an algorithm, and what else distinguishes it."""

    critic_input: CriticInput = "own"
    continuous_ratio: Ratio = "joint"  # of continuous actions; other ratios are per component
    evaluations: int | None = None  # of a whole run; None: every so many updates
    log_last_minibatch: bool = False  # its losses, as PPO's reference; else means over minibatches
    one_agent: bool = False  # only for worlds of one agent


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as `register_algorithm` describes it."""

    name: str
    make_policy: Maker  # (config, spec, agents, team) → Policy
    make_learner: Maker  # (config, spec, player) → Learner
    like: str | None  # the algorithm whose options it takes
    uses: tuple[str, ...]  # options besides, by full name or section
    without: tuple[str, ...]  # options of `like` that it does not use
    options: tuple[str, type] | None  # the name and the class of its own section
    defaults: Mapping[str, Any]
    facts: AlgorithmFacts
    built_in: bool


ALGORITHMS: dict[str, Algorithm] = {}
# Worlds by family/name, each with what makes it of its options.
WORLDS: dict[str, Maker] = {}
# Families of worlds: what makes one, from its name, what follows the slash, and its options. They
# are imported on demand, because jaxmarl and gymnax take seconds to import.
FAMILIES: dict[str, Maker] = {
    "mpe": "jmarl.envs.mpe:make",
    "probe": "jmarl.envs.probe:make",
    "jaxmarl": "jmarl.envs.adapters.jaxmarl:make",
    "gymnax": "jmarl.envs.adapters.gymnax:make",
    "playground": "jmarl.envs.adapters.brax:make",
    "brax": "jmarl.envs.adapters.brax:make",
    "dm_control": "jmarl.envs.adapters.dm_control:make",
    "gymnasium": "jmarl.envs.adapters.gymnasium:make",
    "pettingzoo": "jmarl.envs.adapters.pettingzoo:make",
}


def register_env(name: str, factory: Maker) -> None:
    """Make `--env name`, such as `"my/world"`, a world: `factory(**options)` returns its `Env`.

    The options are those of `--env-options`, and `actions` if `--actions` is given. Scenarios of
    particle worlds come in through `jmarl.envs.mpe.register`."""
    family, slash, rest = name.partition("/") if isinstance(name, str) else ("", "", "")
    if not family or not slash or not rest or family in FAMILIES:
        taken = (
            f"the family {family!r} is built in" if family in FAMILIES else "it is not family/name"
        )
        raise ConfigError(f"{brief(name)} cannot name a world: {taken}.")
    WORLDS[name] = factory


def is_built_in(algorithm: str, env: str) -> bool:
    """Whether neither the algorithm nor the world is of a plug-in. (Of a scenario only its module
    knows.)"""
    return env not in WORLDS and algorithm in ALGORITHMS and ALGORITHMS[algorithm].built_in


def lineage(algorithm: str) -> Iterator[Algorithm]:
    """The algorithm, then the one that it is like, and so on. Nothing for an unknown name."""
    name: str | None = algorithm
    while name in ALGORITHMS:
        yield (found := ALGORITHMS[name])
        name = found.like


def is_like(algorithm: str, names: tuple[str, ...]) -> bool:
    """Whether it, or what it is like, is one of these."""
    return any(each.name in names for each in lineage(algorithm))


def uses(algorithm: str, option: str, declared_for: tuple[str, ...] | None) -> bool:
    """Whether an algorithm uses an option, given by full name, that is declared for these
    algorithms. None: for all, but those that are like no other name the options of networks and
    learning that they use."""
    section = option.rpartition(".")[0]
    for each in lineage(algorithm):
        if option in each.without:
            return False
        if option in each.uses or (section and section in each.uses):
            return True
        if declared_for is not None and each.name in declared_for:
            return True
        if each.like is None:
            of_all = each.built_in or section not in ("net", "ppo")
            return declared_for is None and of_all
    return False


def resolve(maker: Maker) -> Any:
    """What "module:attribute" names; anything else as it is."""
    if not isinstance(maker, str):
        return maker
    module, colon, attribute = maker.partition(":")
    if not colon or not module or not attribute:
        raise ConfigError(f"{brief(maker)} is not of the form module:attribute.")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(
            f"{maker!r} cannot be used: there is no module {error.name!r}. If it is a file, name "
            "it with --plugin FILE.py."
        ) from None
    except AttributeError:
        if not hasattr(importlib.import_module(module), attribute):
            raise ConfigError(f"{maker!r} cannot be used: {module} has no {attribute}.") from None
        raise
