"""From a sweep to its members: which settings, which seeds, and which share a program."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jmarl.config.formatting import told
from jmarl.config.option_names import nested, traced, value_of
from jmarl.config.sweep_options import Draw, SweepConfig
from jmarl.config.train_config import Config, build
from jmarl.errors import ConfigError
from jmarl.learning.ppo_loss import Hyper

__all__ = ["Group", "Member", "Plan", "plan", "traced"]

DIGITS = 6  # of drawn numbers, so that they can be read and written


@dataclass(frozen=True)
class Member:
    """One run of the sweep."""

    index: int  # among all members
    setting: int  # which combination of values, whatever the seed
    settings: dict[str, Any]  # the swept options by full name
    seed: int
    config: Config


class Group(NamedTuple):
    """Members that differ in seed and traced hyperparameters only: one program."""

    config: Config  # what they share, and of the rest the first member's
    members: tuple[Member, ...]


class Plan(NamedTuple):
    groups: tuple[Group, ...]
    names: tuple[str, ...]  # of swept options

    @property
    def members(self) -> tuple[Member, ...]:
        """In the order of their indices."""
        everybody = itertools.chain.from_iterable(group.members for group in self.groups)
        return tuple(sorted(everybody, key=lambda member: member.index))


def plan(sweep: SweepConfig) -> Plan:
    """All members, the same for the same sweep. Faults of values are told with their setting."""
    members = []
    for setting, config in enumerate(_configs(sweep)):
        settings = {name: value_of(config, name) for name in sweep.names}
        for seed in range(config.seed, config.seed + sweep.seeds):
            seeded = config.model_copy(update={"seed": seed})
            members.append(Member(len(members), setting, settings, seed, seeded))
    _check_counts(sweep, len(members))
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(_static(member.config), []).append(member)
    return Plan(tuple(_group(tuple(group)) for group in groups.values()), sweep.names)


def _configs(sweep: SweepConfig) -> Iterator[Config]:
    """One for each setting. Draws that turn out equal are one setting."""
    seen = set()
    for values in _combinations(sweep):
        try:
            config = build(nested({**sweep.base, **values}))
        except ConfigError as error:
            raise ConfigError(f"with {told(values)}: {error}" if values else str(error)) from None
        key = config.model_dump_json()
        if key not in seen:
            seen.add(key)
            yield config


def _combinations(sweep: SweepConfig) -> Iterator[dict[str, Any]]:
    """Every point of the grid, the last name fastest, with every draw."""
    rng = np.random.default_rng(sweep.seed)
    draws = [
        {name: _drawn(draw, rng) for name, draw in sweep.random.items()}
        for _ in range(sweep.samples if sweep.random else 1)
    ]
    for values in itertools.product(*sweep.grid.values()):
        point = dict(zip(sweep.grid, values, strict=True))
        for draw in draws:
            yield point | draw


def _drawn(draw: Draw, rng: np.random.Generator) -> Any:
    if draw.choice is not None:
        return draw.choice[rng.integers(len(draw.choice))]
    low, high = getattr(draw, draw.way)
    if draw.uniform is not None:
        number = rng.uniform(low, high)
    else:
        number = np.exp(rng.uniform(np.log(low), np.log(high)))
    return min(max(float(f"{number:.{DIGITS}g}"), low), high)


def _check_counts(sweep: SweepConfig, members: int) -> None:
    if sweep.pbt and members < 2:
        raise ConfigError("pbt needs at least 2 members to exchange between: give more seeds.")
    if sweep.halving and members < sweep.halving_factor:
        raise ConfigError(
            f"halving keeps one of {sweep.halving_factor} members, but there "
            f"{'is' if members == 1 else 'are'} only {members}: give more seeds or values."
        )


def _static(config: Config) -> str:
    """What makes a program: everything but seed and traced hyperparameters."""
    apart = {"seed": True, "ppo": set(Hyper.__dataclass_fields__)}
    return config.model_dump_json(exclude=apart)


def _group(members: tuple[Member, ...]) -> Group:
    """Whether epochs can stop at a KL is static: they can if they do in any member."""
    config = members[0].config
    stops = [m.config.ppo.target_kl for m in members if m.config.ppo.target_kl > 0]
    if stops and config.ppo.target_kl <= 0:
        ppo = config.ppo.model_copy(update={"target_kl": stops[0]})
        config = config.model_copy(update={"ppo": ppo})
    return Group(config, members)


def shared_config(sweep: SweepConfig, config: Config) -> Config:
    """The configuration that a group runs with."""
    own = ("members_per_batch", "devices", "quiet", "hosts")
    return config.model_copy(update={name: getattr(sweep, name) for name in own})
