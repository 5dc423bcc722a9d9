"""Expands a sweep into members, and groups the members that share a compiled program."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from jmarl.config.formatting import formatted
from jmarl.config.option_names import (
    flat_applicable,
    hyperparameters,
    nested,
    traced,
    value_of,
    with_value,
)
from jmarl.config.stored import as_it_ran
from jmarl.config.sweep_options import Draw, Resolved, SweepConfig
from jmarl.config.train_config import Config, applies, build, flat_values
from jmarl.errors import ConfigError

__all__ = ["Member", "Plan", "ProgramGroup", "plan", "traced"]

DIGITS = 6  # of drawn numbers, to keep them short
UNUSED = "–"  # in place of the value of an option that a member's algorithm does not use


@dataclass(frozen=True)
class Member:
    """One run of the sweep."""

    index: int  # among all members
    setting: int  # which combination of values, whatever the seed
    settings: dict[str, Any]  # the swept options by full name
    seed: int
    config: Config


class ProgramGroup(NamedTuple):
    """Members that differ in seed and traced hyperparameters only: one program."""

    config: Config  # the shared options; the others are the first member's
    members: tuple[Member, ...]


class Plan(NamedTuple):
    groups: tuple[ProgramGroup, ...]
    names: tuple[str, ...]  # of swept options

    @property
    def members(self) -> tuple[Member, ...]:
        """In the order of their indices."""
        everybody = itertools.chain.from_iterable(group.members for group in self.groups)
        return tuple(sorted(everybody, key=lambda member: member.index))


def plan(sweep: SweepConfig) -> Plan:
    """The members of a sweep; the same sweep gives the same members. An invalid value is reported
    with its setting."""
    members = []
    for setting, config in enumerate(_configs(sweep)):
        settings = {name: _setting(config, name) for name in sweep.names}
        for seed in range(config.seed, config.seed + sweep.seeds):
            seeded = config.model_copy(update={"seed": seed})
            members.append(Member(len(members), setting, settings, seed, seeded))
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(_static(member.config), []).append(member)
    made = Plan(tuple(_group(tuple(group)) for group in groups.values()), sweep.names)
    _check_counts(sweep, made)
    return made


def resolved(plan: Plan) -> Resolved:
    """Every option of every setting, for the sweep's file; what all share is there once."""
    firsts = {member.setting: member.config for member in reversed(plan.members)}
    every = [
        {name: x for name, x in flat_values(firsts[setting]) if not name.startswith("hosts.")}
        for setting in sorted(firsts)
    ]
    shared = {
        name: value
        for name, value in every[0].items()
        if all(name in values and values[name] == value for values in every)
    }
    own = ({name: x for name, x in one.items() if name not in shared} for one in every)
    return Resolved(shared=shared, settings=tuple(own))


def confirmation(plan: Plan, setting: int, seeds: int) -> ProgramGroup:
    """One setting again, with seeds that no member of the search had."""
    first = next(member for member in plan.members if member.setting == setting)
    fresh = max(member.seed for member in plan.members) + 1
    return _group(
        tuple(
            replace(
                first, index=i, seed=seed, config=first.config.model_copy(update={"seed": seed})
            )
            for i, seed in enumerate(range(fresh, fresh + seeds))
        )
    )


def _setting(config: Config, name: str) -> Any:
    return value_of(config, name) if applies(name, config.algorithm) else UNUSED


def _configs(sweep: SweepConfig) -> Iterator[Config]:
    """One configuration per setting. Equal draws are one setting."""
    if sweep.resolved is not None:
        for own in sweep.resolved.settings:
            yield build(as_it_ran(nested(sweep.resolved.shared | own)))
        return
    seen = set()
    for values in _combinations(sweep):
        try:
            config = build(nested(flat_applicable({**sweep.base, **values})))
        except ConfigError as error:
            raise ConfigError(
                f"with {formatted(values)}: {error}" if values else str(error)
            ) from None
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


def _check_counts(sweep: SweepConfig, plan: Plan) -> None:
    if sweep.pbt and len(plan.members) < 2:
        raise ConfigError("pbt needs at least 2 members to exchange between: give more seeds.")
    if not sweep.halving or sweep.resume is not None:  # earlier versions selected among seeds
        return
    settings = len({member.setting for member in plan.members})
    if settings < sweep.halving_factor:
        raise ConfigError(
            f"halving keeps one of {sweep.halving_factor} settings, but there "
            f"{'is' if settings == 1 else 'are'} only {settings}: give more values."
        )
    if all(len({member.setting for member in group.members}) == 1 for group in plan.groups):
        raise ConfigError(
            "halving selects among settings of one compiled program, but here each setting has its "
            "own: sweep a hyperparameter, such as ppo.lr."
        )


def _static(config: Config) -> str:
    """The options that a program depends on: all but the seed and traced hyperparameters."""
    apart: dict[str, Any] = {"seed": True}
    for name in hyperparameters(config.algorithm).values():
        section, _, leaf = name.rpartition(".")
        apart.setdefault(section, set()).add(leaf)
    return config.model_dump_json(exclude=apart)


def _group(members: tuple[Member, ...]) -> ProgramGroup:
    """Early stopping by KL is compiled in if any member uses it."""
    config = members[0].config
    stops = [m.config.ppo.target_kl for m in members if m.config.ppo.target_kl > 0]
    if stops and config.ppo.target_kl <= 0:
        config = with_value(config, "ppo.target_kl", stops[0])
    return ProgramGroup(config, members)


def shared_config(sweep: SweepConfig, config: Config) -> Config:
    """The configuration that a group runs with."""
    own = ("members_per_batch", "devices", "quiet", "hosts")
    return config.model_copy(update={name: getattr(sweep, name) for name in own})
