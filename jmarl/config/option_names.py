"""Names of a run's options, as sweeps write them: `ppo.lr`, or `lr` for short."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo

from jmarl.config.options import TRACED_OPTION, NetConfig, PpoConfig, Section
from jmarl.config.train_config import Config
from jmarl.errors import ConfigError, unknown

SECTIONS: dict[str, type[Section]] = {"net": NetConfig, "ppo": PpoConfig}
WORLD = "env_options"  # its names are the world's own: `env_options.num_agents`

FIELDS: dict[str, FieldInfo] = {
    name: info
    for name, info in Config.model_fields.items()
    if name not in SECTIONS and name != WORLD
} | {
    f"{section}.{name}": info
    for section, model in SECTIONS.items()
    for name, info in model.model_fields.items()
}
SHORT = {name.rpartition(".")[2]: name for name in FIELDS}
TRACED = frozenset(name for name, info in FIELDS.items() if info.json_schema_extra == TRACED_OPTION)


def traced(name: str) -> bool:
    """Whether members of one compiled program may differ in this option."""
    return name in TRACED


def resolve(name: Any) -> str:
    """The full name of an option, which may be given in short."""
    if not isinstance(name, str):
        raise ConfigError(f"options are named by words, not by {name!r}.")
    plain = name.replace("-", "_")
    if plain in FIELDS or re.fullmatch(rf"{WORLD}\.[A-Za-z_]\w*", plain):
        return plain
    if plain in SHORT:
        return SHORT[plain]
    section = plain.partition(".")[0]
    if section in SECTIONS:
        raise unknown("option", name, [field for field in FIELDS if field.startswith(section)])
    raise unknown("option", name, [*SHORT, f"{WORLD}.NAME"])


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


def value_of(config: Config, name: str) -> Any:
    section, _, field = name.rpartition(".")
    if section == WORLD:
        return config.env_options[field]
    return getattr(getattr(config, section) if section else config, field)


def limit(name: str, *kinds: str) -> float | None:
    """The number that a field's constraint of one of these kinds (ge, gt, le, lt) names."""
    for constraint in FIELDS[name].metadata:
        for kind in kinds:
            if hasattr(constraint, kind):
                return float(getattr(constraint, kind))
    return None
