"""A sweep from what its file or its command line says, and back to a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic
import yaml

from jmarl.config.known_options import OPTIONS, SECTIONS
from jmarl.config.option_names import (
    WORLD,
    flat,
    flat_swept,
    short_names,
)
from jmarl.config.parse_values import WAYS, with_numbers
from jmarl.config.preset_lines import located
from jmarl.config.sweep_options import Draw, SweepConfig
from jmarl.config.train_config import read_preset
from jmarl.config.yaml_files import read_yaml
from jmarl.errors import ConfigError, InapplicableOptionError, refused, unknown
from jmarl.plugins import load_recorded, located_plugins

SAVED = "sweep.yaml"  # in a sweep's directory


def read_sweep(path: Path) -> dict[str, Any]:
    """A sweep's file; the preset and the plug-ins that it names are beside it."""
    values = read_yaml(path, "sweep", stored=path.name == SAVED)
    if isinstance(preset := values.get("preset"), str):
        values["preset"] = str(path.parent / preset)
    if isinstance(base := values.get("base"), dict) and "plugins" in base:
        base["plugins"] = located_plugins(base["plugins"], path.parent)
    return values


def outline(values: Mapping[str, Any]) -> SweepConfig:
    """The sweep that values describe, not yet checked as a whole."""
    _load_plugins(values)
    known = with_numbers({name: value for name, value in values.items() if name != "resolved"})
    resolved = values.get("resolved") if values.get("resume") else None  # a new sweep resolves anew
    try:
        options = {
            "base": _with_preset(known.get("preset"), flat(known.get("base") or {}, "base")),
            "grid": {
                name: _listed(name, tried)
                for name, tried in flat_swept(known.get("grid"), "grid").items()
            },
            "random": {
                name: _drawn(name, draw)
                for name, draw in flat_swept(known.get("random"), "random").items()
            },
        }
        if "plugins" in options["base"]:
            options["base"]["plugins"] = load_recorded(options["base"]["plugins"])
        return SweepConfig(**{**known, "preset": None, "resolved": resolved, **options})
    except pydantic.ValidationError as error:
        raise _explained(error.errors()[0]) from None
    except TypeError as error:
        raise ConfigError(f"the sweep's keys must be names: {error}.") from None


def _load_plugins(values: Mapping[str, Any]) -> None:
    """Before options are looked up: those of plug-ins have names, too."""
    base = values.get("base")
    load_recorded(base.get("plugins", ()) if isinstance(base, Mapping) else ())
    if isinstance(preset := values.get("preset"), str | Path):
        read_preset(Path(preset))


def build(values: Mapping[str, Any]) -> SweepConfig:
    """A checked sweep; the first fault is named in one sentence."""
    sweep = outline(values)
    try:
        sweep.check()
    except InapplicableOptionError as error:
        preset = values.get("preset")
        raise (error if preset is None else located(error, Path(preset))) from None
    return sweep


def _with_preset(preset: Any, base: dict[str, Any]) -> dict[str, Any]:
    for name in base:
        if not _in_base(name):
            raise ConfigError(f"base cannot have {name}: {OPTIONS[name].unswept}.")
    if preset is None:
        return base
    if not isinstance(preset, str | Path):
        raise ConfigError(f"preset={preset!r} is not a path.")
    below = flat(read_preset(Path(preset)), f"preset {str(preset)!r}")
    return {name: value for name, value in below.items() if _in_base(name)} | base


def _in_base(name: str) -> bool:
    return name not in OPTIONS or OPTIONS[name].in_base


def _listed(name: str, tried: Any) -> tuple[Any, ...]:
    if not isinstance(tried, list | tuple):
        raise ConfigError(f"grid.{name}={tried!r} is not a list of values.")
    return tuple(_hashable(value) for value in tried)


def _drawn(name: str, draw: Any) -> Any:
    ways = ", ".join(f"{{{way}: {like}}}" for way, like in WAYS.items())
    given = draw.model_dump(exclude_none=True) if isinstance(draw, Draw) else draw
    if not isinstance(given, Mapping) or len(given) != 1:
        raise ConfigError(f"random.{name}={given!r} must say how it is drawn: one of {ways}.")
    (way, values), *_ = given.items()
    if way not in WAYS:
        raise unknown(f"way to draw {name}", str(way), WAYS)
    listed = isinstance(values, list | tuple)
    if not listed or (way != "choice" and len(values) != 2):
        raise ConfigError(f"random.{name}.{way}={values!r} is not like {WAYS[way]}.")
    return {way: tuple(_hashable(value) for value in values)}


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _explained(fault: Any) -> ConfigError:
    path = [str(part) for part in fault["loc"]]
    if fault["type"] != "extra_forbidden":
        return refused(fault)
    name = path[0].partition(".")[0]
    if name in short_names() or name in (*SECTIONS, WORLD):
        return ConfigError(f"{path[0]!r} is an option of runs, not of the sweep: it goes to base.")
    return unknown("option", path[0], SweepConfig.model_fields)


def to_yaml(sweep: SweepConfig) -> str:
    """The sweep, for its directory; `build(yaml.safe_load(…))` gives it back."""
    resolved = {"resolved"} if sweep.resolved is None else set()
    values = sweep.model_dump(mode="json", exclude={"resume", "hosts"} | resolved)
    draws = values["random"]
    values["random"] = {
        name: {draw.way: draws[name][draw.way]} for name, draw in sweep.random.items()
    }
    return yaml.safe_dump(values, sort_keys=False, default_flow_style=None)
