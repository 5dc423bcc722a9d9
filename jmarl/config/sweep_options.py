"""The configuration of a sweep: which options are tried, in which runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic
import yaml
from pydantic import Field, FiniteFloat

from jmarl.config.formatting import shown
from jmarl.config.option_names import SHORT, WORLD, flat, limit, traced
from jmarl.config.options import HostsConfig, Section
from jmarl.config.parse_values import WAYS, with_numbers
from jmarl.config.train_config import read_preset
from jmarl.errors import ConfigError, refused, unknown

SAVED = "sweep.yaml"  # in a sweep's directory
OWN = ("run_dir", "resume", "seeds", "members_per_batch", "devices")  # of runs; a sweep has others
UNSWEPT = {
    "seed": "members have seeds anyway: say how many with seeds",
    "run_dir": "members have directories of their own in sweep_dir",
    "resume": "the sweep is resumed as a whole, with --resume DIR",
    **dict.fromkeys(
        ("seeds", "members_per_batch", "devices"), "it is an option of the sweep as a whole"
    ),
    **dict.fromkeys(
        ("quiet", "tensorboard", "gif", "wandb", "compilation_cache"),
        "it does not change what is learned",
    ),
}


class Draw(Section):
    """How values of one option are drawn; one of the three."""

    uniform: tuple[FiniteFloat, FiniteFloat] | None = None
    log_uniform: tuple[FiniteFloat, FiniteFloat] | None = None
    choice: tuple[Any, ...] | None = None

    @property
    def way(self) -> str:
        return next(way for way in WAYS if getattr(self, way) is not None)


class SweepOptions(Section):
    """What files and command lines have in common; they write base, grid and random each in their
    own way."""

    preset: Path | None = Field(default=None, description="the run's preset, under base")
    base: Any
    grid: Any
    random: Any
    samples: int = Field(
        default=16,
        ge=1,
        description="draws of random, each combined with every point of the grid; "
        "equal ones count once",
    )
    seeds: int = Field(default=1, ge=1, description="runs of each setting, from base's seed on")
    seed: int = Field(default=0, ge=0, description="of draws and of pbt")
    halving: bool = Field(
        default=False, description="successive halving: at each rung only the best train on"
    )
    halving_factor: int = Field(default=2, ge=2, description="halving keeps one of so many")
    rungs: int = Field(default=3, ge=1, description="how often halving selects")
    pbt: bool = Field(
        default=False,
        description="population-based training: the worst take over the best's networks, and "
        "their hyperparameters changed a little",
    )
    pbt_every: int | None = Field(
        default=None, ge=1, description="updates between pbt's exchanges; None: with evaluations"
    )
    pbt_fraction: float = Field(
        default=0.25, gt=0, le=0.5, description="part of members that pbt replaces"
    )
    pbt_factor: float = Field(
        default=1.25, gt=1, le=10, description="by which pbt multiplies or divides"
    )
    members_per_batch: int | None = Field(
        default=None, ge=1, description="members that train at once; None: all that share a program"
    )
    devices: int | None = Field(
        default=None, ge=1, description="devices that share the members; None: all there are"
    )
    sweep_dir: Path | None = Field(default=None, description="where results go; None: under runs/")
    resume: Path | None = Field(default=None, description="continue the sweep in this directory")
    plots: bool = Field(default=True, description="draw pictures of the results")
    quiet: bool = Field(default=False, description="show nothing but the outcome")
    hosts: HostsConfig = Field(default=HostsConfig(), description="processes that train together")


class SweepConfig(SweepOptions):
    """A sweep, checked: options by their full names, the preset taken into `base`."""

    base: dict[str, Any] = Field(default={}, description="options of all runs")
    grid: dict[str, tuple[Any, ...]] = Field(default={}, description="option: all its values")
    random: dict[str, Draw] = Field(default={}, description="option: how it is drawn")

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.grid, *self.random)

    def check(self) -> None:
        """Refuse combinations that no single field can see."""
        for name in self.names:
            if name in UNSWEPT:
                raise ConfigError(f"{name} cannot be swept: {UNSWEPT[name]}.")
            if name in self.grid and name in self.random:
                raise ConfigError(f"{name} is in grid and in random; it can be in one of them.")
        for name, values in self.grid.items():
            _check_values(f"grid.{name}", values)
        for name, draw in self.random.items():
            _check_draw(name, draw)
        if not self.names and self.seeds == 1:
            raise ConfigError(
                "there is nothing to sweep: name options under grid or random, or give more seeds."
            )
        if self.halving and self.pbt:
            raise ConfigError("halving and pbt exclude each other; choose one.")
        if self.pbt:
            self._check_pbt()

    def _check_pbt(self) -> None:
        if not self.names:
            raise ConfigError("pbt has nothing to change: name hyperparameters in grid or random.")
        for name in self.names:
            if not traced(name):
                raise ConfigError(
                    f"pbt cannot change {name} while members train: they share one compiled "
                    "program, and so everything but hyperparameters."
                )


def _check_values(where: str, values: tuple[Any, ...]) -> None:
    if not values:
        raise ConfigError(f"{where} has no values.")
    seen: list[Any] = []
    for value in values:
        if value in seen:
            raise ConfigError(f"{where} has {shown(value)} twice.")
        seen.append(value)


def _check_draw(name: str, draw: Draw) -> None:
    way = draw.way
    where = f"random.{name}.{way}"
    if draw.choice is not None:
        return _check_values(where, draw.choice)
    if not traced(name):
        raise ConfigError(
            f"{where}: each value of {name} compiles anew, so it can only be drawn by choice from "
            "a list."
        )
    low, high = getattr(draw, way)
    if low > high:
        raise ConfigError(f"{where}: its bounds are reversed, {low:g} is more than {high:g}.")
    if way == "log_uniform" and low <= 0:
        raise ConfigError(f"{where}: a logarithm needs bounds above 0, not {low:g}.")
    least, most = limit(name, "ge", "gt"), limit(name, "le", "lt")
    if least is not None and low < least:
        raise ConfigError(f"{where} reaches down to {low:g}, but {name} is at least {least:g}.")
    if most is not None and high > most:
        raise ConfigError(f"{where} reaches up to {high:g}, but {name} is at most {most:g}.")


def read_sweep(path: Path) -> dict[str, Any]:
    """A sweep's file; the preset it names is beside it."""
    values = read_preset(path)
    if isinstance(preset := values.get("preset"), str):
        values["preset"] = str(path.parent / preset)
    return values


def outline(values: Mapping[str, Any]) -> SweepConfig:
    """The sweep that values describe, not yet checked as a whole."""
    known = with_numbers(values)
    try:
        options = {
            "base": _with_preset(known.get("preset"), flat(known.get("base") or {}, "base")),
            "grid": {
                name: _listed(name, tried)
                for name, tried in flat(known.get("grid") or {}, "grid").items()
            },
            "random": {
                name: _drawn(name, draw)
                for name, draw in flat(known.get("random") or {}, "random").items()
            },
        }
        return SweepConfig(**{**known, "preset": None, **options})
    except pydantic.ValidationError as error:
        raise _explained(error.errors()[0]) from None
    except TypeError as error:
        raise ConfigError(f"the sweep's keys must be names: {error}.") from None


def build(values: Mapping[str, Any]) -> SweepConfig:
    """A checked sweep; the first fault is named in one sentence."""
    sweep = outline(values)
    sweep.check()
    return sweep


def _with_preset(preset: Any, base: dict[str, Any]) -> dict[str, Any]:
    for name in OWN:
        if name in base:
            raise ConfigError(f"base cannot have {name}: {UNSWEPT[name]}.")
    if preset is None:
        return base
    if not isinstance(preset, str | Path):
        raise ConfigError(f"preset={preset!r} is not a path.")
    below = flat(read_preset(Path(preset)), f"preset {str(preset)!r}")
    return {name: value for name, value in below.items() if name not in OWN} | base


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
    if name in SHORT or name in ("net", "ppo", WORLD):
        return ConfigError(f"{path[0]!r} is an option of runs, not of the sweep: it goes to base.")
    return unknown("option", path[0], SweepConfig.model_fields)


def to_yaml(sweep: SweepConfig) -> str:
    """The resolved sweep, for its directory; `build(yaml.safe_load(…))` gives it back."""
    values = sweep.model_dump(mode="json", exclude={"resume", "hosts"})
    draws = values["random"]
    values["random"] = {
        name: {draw.way: draws[name][draw.way]} for name, draw in sweep.random.items()
    }
    return yaml.safe_dump(values, sort_keys=False)
