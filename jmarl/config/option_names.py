"""Names of a run's options, as sweeps write them: `ppo.lr`, or `lr` for short."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from jmarl.config.declaration import Option
from jmarl.config.known_options import FIELDS, OPTIONS, SECTIONS
from jmarl.config.train_config import Config, algorithm_of, applies, merged
from jmarl.errors import ConfigError, unknown

WORLD = "env_options"  # its names are the environment's own: `env_options.num_agents`


def short_names() -> dict[str, str]:
    """Full names by short ones, where those are of one option."""
    short = {name: name.rpartition(".")[2] for name in OPTIONS if name != WORLD}
    count = Counter(short.values())
    return {leaf: name for name, leaf in short.items() if count[leaf] == 1}


def hyperparameters(algorithm: str) -> dict[str, str]:
    """Full names of the traced options by their names as hyperparameters: PPO's, which every
    program has, then those that the algorithm has of its own."""
    return {
        name.rpartition(".")[2]: name
        for name in sorted(OPTIONS, key=lambda name: not name.startswith("ppo."))
        if traced(name) and (name.startswith("ppo.") or applies(name, algorithm))
    }


def traced(name: str) -> bool:
    """Whether members of one compiled program may differ in this option."""
    return name in OPTIONS and OPTIONS[name].traced


def why_unswept(name: str) -> str:
    """Why a sweep cannot vary an option, or any option of a section; empty: it can."""
    options = [OPTIONS[name]] if name in OPTIONS else _options_of(name)
    return options[0].unswept if options and all(option.unswept for option in options) else ""


def _options_of(section: str) -> list[Option]:
    return [option for name, option in OPTIONS.items() if name.startswith(f"{section}.")]


def resolve(name: Any) -> str:
    """The full name of an option, which may be given in short."""
    if not isinstance(name, str):
        raise ConfigError(f"options are named by words, not by {name!r}.")
    plain = name.replace("-", "_")
    if (plain in OPTIONS and plain != WORLD) or re.fullmatch(rf"{WORLD}\.[A-Za-z_]\w*", plain):
        return plain
    if plain in (short := short_names()):
        return short[plain]
    section = plain.partition(".")[0]
    if section in SECTIONS:
        raise unknown("option", name, [field for field in OPTIONS if field.startswith(section)])
    raise unknown("option", name, [*short, f"{WORLD}.NAME"])


def flat(options: Any, of: str) -> dict[str, Any]:
    """Options by full name, from sections or names with dots. `of`: where they stand."""
    found: dict[str, Any] = {}
    for key, value in _mapping(options, of).items():
        inner = {key: value}
        if key in (*SECTIONS, WORLD):
            inner = {f"{key}.{name}": part for name, part in _mapping(value, key).items()}
        for name, part in inner.items():
            full = resolve(name)
            if full in found:
                raise ConfigError(f"{of} has {full} twice.")
            found[full] = part
    return found


def flat_swept(options: Any, of: str) -> dict[str, Any]:
    """The same of the options that a sweep varies."""
    for name in options if isinstance(options, Mapping) else ():
        if name in SECTIONS and (why := why_unswept(name)):
            raise ConfigError(f"{name} cannot be swept: {why}.")
    return flat(options or {}, of)


def _mapping(value: Any, of: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{of}={value!r} is not a mapping of options.")
    return value


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flat`: what `config.build` takes."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        section, _, field = name.rpartition(".")
        inner = found.setdefault(section, {}) if section else found
        inner[field] = value
    return found


def flat_applicable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by full name, without those that their algorithm does not use."""
    algorithm = algorithm_of(options)
    return {name: value for name, value in options.items() if applies(name, algorithm)}


def value_of(config: Config, name: str) -> Any:
    section, _, field = name.rpartition(".")
    if section == WORLD:
        return config.env_options[field]
    return getattr(getattr(config, section) if section else config, field)


def with_value(config: Config, name: str, value: Any) -> Config:
    """The configuration with another value of an option in a section."""
    section, _, field = name.rpartition(".")
    inner = getattr(config, section).model_copy(update={field: value})
    return config.model_copy(update={section: inner})


def limit(name: str, *kinds: str) -> float | None:
    """The number that an option's constraint of one of these kinds (ge, gt, le, lt) names."""
    return next((number for kind, number in limits(FIELDS[name]) if kind in kinds), None)


def limits(info: FieldInfo) -> Iterator[tuple[str, float]]:
    """The constraints of a number: ge, gt, le or lt, and where it is."""
    for constraint in info.metadata:
        for kind in ("ge", "gt", "le", "lt"):
            if hasattr(constraint, kind):
                yield kind, float(getattr(constraint, kind))


def overridden(values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Values under those that are given. Options of the environment replace all others."""
    below = {name: value for name, value in values.items() if name != WORLD or name not in given}
    return merged(below, given)
