"""The options of a sweep: which options are tried, in which runs."""

import math
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import FiniteFloat

from jmarl.config.declaration import Section, option
from jmarl.config.formatting import shown
from jmarl.config.option_names import (
    limit,
    traced,
    why_unswept,
)
from jmarl.config.options import HostsConfig
from jmarl.config.parse_values import WAYS
from jmarl.config.train_config import algorithm_of, applies, inapplicable
from jmarl.errors import ConfigError

LEAST_CONFIRMED = 3  # fresh seeds, by default
MOST_MEMBERS = 100_000
search = partial(option, group="search")


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

    preset: Path | None = search(None, "Preset of the runs, under base.")
    base: Any
    grid: Any
    random: Any
    samples: int = search(
        16,
        "Number of draws of random, each combined with every point of the grid; equal ones count "
        "once.",
        ge=1,
    )
    seeds: int = search(1, "Number of seeds for each setting, from base's seed on.", ge=1)
    seed: int = search(0, "Random seed of the draws and of pbt.", ge=0)
    halving: bool = search(
        False, "Successive halving: at each rung, only the best settings train on."
    )
    halving_factor: int = search(2, "Halving keeps one of this many settings.", ge=2)
    rungs: int = search(3, "Number of times that halving selects.", ge=1)
    pbt: bool = search(
        False,
        "Population-based training: the worst members copy the best and perturb their "
        "hyperparameters.",
    )
    pbt_every: int | None = search(
        None, "Updates between pbt's exchanges. None: one with each evaluation.", ge=1
    )
    pbt_fraction: float = search(0.25, "Fraction of members that pbt replaces.", gt=0, le=0.5)
    pbt_factor: float = search(
        1.25, "Factor by which pbt multiplies or divides hyperparameters.", gt=1, le=10
    )
    confirm_seeds: int | None = search(
        None,
        "Number of fresh seeds that score the best setting once more at the end. None: as many as "
        "seeds, at least 3, after halving and random draws, else 0.",
        ge=0,
    )
    members_per_batch: int | None = search(
        None, "Members that train at once. None: as many as is fast.", ge=1
    )
    devices: int | None = search(
        None, "Number of devices that share the members. None: all.", resumable=True, ge=1
    )
    sweep_dir: Path | None = search(None, "Directory for results. None: a new one under runs/.")
    resume: Path | None = search(None, "Continue the sweep in this directory.")
    plots: bool = search(True, "Draw plots of the results.", resumable=True)
    quiet: bool = search(False, "Print the result only.", resumable=True)
    hosts: HostsConfig = HostsConfig()


class Resolved(Section):
    """The options of all settings by full name."""

    shared: dict[str, Any] = search(..., "Options that all settings share.")
    settings: tuple[dict[str, Any], ...] = search(..., "Further options of each setting.")


class SweepConfig(SweepOptions):
    """A sweep, checked: options by their full names, the preset taken into `base`."""

    base: dict[str, Any] = search({}, "Options of all runs.")
    grid: dict[str, tuple[Any, ...]] = search({}, "Options with all values to try.")
    random: dict[str, Draw] = search({}, "Options with the way to draw them.")
    resolved: Resolved | None = search(
        None, "Of a sweep that is resumed: its settings as they began, whatever defaults are now."
    )

    @property
    def confirmations(self) -> int:
        """Fresh seeds for the best setting."""
        if self.confirm_seeds is not None:
            return self.confirm_seeds
        searched = self.halving or (bool(self.random) and not self.pbt)
        return max(LEAST_CONFIRMED, self.seeds) if searched else 0

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.grid, *self.random)

    def check(self) -> None:
        """Refuse combinations that no single field can see."""
        for name in self.names:
            if why := why_unswept(name):
                raise ConfigError(f"{name} cannot be swept: {why}.")
            if name in self.grid and name in self.random:
                raise ConfigError(f"{name} is in grid and in random; it can be in one of them.")
        self._check_applicable()
        for name, values in self.grid.items():
            _check_values(f"grid.{name}", values)
        for name, draw in self.random.items():
            _check_draw(name, draw)
        self._check_size()
        if not self.names and self.seeds == 1:
            raise ConfigError(
                "there is nothing to sweep: name options under grid or random, or give more seeds."
            )
        if self.halving and self.pbt:
            raise ConfigError("halving and pbt exclude each other; choose one.")
        if self.pbt:
            self._check_pbt()
        if self.pbt and self.confirm_seeds:
            raise ConfigError(
                f"confirm_seeds={self.confirm_seeds} cannot go with pbt, whose best member is a "
                "schedule of hyperparameters, not a setting that can be trained once more."
            )

    def _check_size(self) -> None:
        """Refuse what would take memory and hours before the first member trains."""
        points = math.prod(map(len, self.grid.values()))
        draws = self.samples if self.random else 1
        total = points * draws * self.seeds
        if total > MOST_MEMBERS or self.confirmations > MOST_MEMBERS:
            raise ConfigError(
                f"the sweep has {total:,} members ({points:,} in the grid × {draws:,} drawn × "
                f"{self.seeds:,} seeds) and {self.confirmations:,} to confirm the best; at most "
                f"{MOST_MEMBERS:,} are possible."
            )

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Those of the members."""
        drawn = self.random["algorithm"].choice if "algorithm" in self.random else None
        alone = (algorithm_of(self.base),)
        return tuple(map(str, self.grid.get("algorithm") or drawn or alone))

    def _check_applicable(self) -> None:
        """Refuse options that no algorithm of the sweep uses. Where it has several, members are
        without the options that theirs does not use."""
        names = (*self.base, *self.names)
        unused = [n for n in names if not any(applies(n, each) for each in self.algorithms)]
        if unused:
            raise inapplicable(unused, *self.algorithms)

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
