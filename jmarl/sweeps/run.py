"""A sweep on disk: one group of members after the other, each a program of its own."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from jmarl.config.sweep_options import SAVED, SweepConfig, to_yaml
from jmarl.config.train_config import Config
from jmarl.errors import ConfigError
from jmarl.execution import multihost
from jmarl.execution.members import Members
from jmarl.execution.population import Crew, make_crew
from jmarl.learning.ppo_loss import Hyper
from jmarl.runs import directory as run_dir
from jmarl.runs.loop import Selection
from jmarl.runs.multi_seed import Place, run_group
from jmarl.sweeps.plan import Group, Member, Plan, shared_config
from jmarl.sweeps.results import member_name
from jmarl.sweeps.schedulers import Halving, Pbt
from jmarl.sweeps.selection import rung_updates

FINISHED = "finished.json"
EXCHANGES = "pbt.jsonl"


class Swept(NamedTuple):
    path: Path
    stopped_by: int | None  # the signal that cut it short


def run_sweep(sweep: SweepConfig, plan: Plan, console: Console) -> Swept:
    """Train all members, into a new directory or the one that is resumed."""
    for group in plan.groups:
        _check(sweep, make_crew(shared_config(sweep, group.config), _members(group.members)))
    made = multihost.from_first(lambda: os.fsencode(sweep.resume or _create(sweep, plan)))
    path = Path(os.fsdecode(made))
    with run_dir.claimed(path) if multihost.first() else contextlib.nullcontext():
        for number, group in enumerate(plan.groups):
            stopped_by = _run_group(sweep, plan, number, group, path, console)
            if stopped_by is not None:
                return Swept(path, stopped_by)
    return Swept(path, None)


def _run_group(
    sweep: SweepConfig, plan: Plan, number: int, group: Group, path: Path, console: Console
) -> int | None:
    """Unless it is done already. The signal that cut it short, if one did."""
    where = path / f"group_{number}"
    if multihost.from_first(lambda: str((where / FINISHED).exists()).encode()) == b"True":
        return None
    if len(plan.groups) > 1 and not sweep.quiet and multihost.first():
        of = ", ".join(f"{k}={v}" for k, v in _common(group.members).items())
        told = f"group {number + 1} of {len(plan.groups)}: {len(group.members)} members, {of}"
        console.print(told, markup=False, soft_wrap=True)
    if multihost.first():
        where.mkdir(exist_ok=True)
    config, count = shared_config(sweep, group.config), len(plan.members)
    places = [Place(path / member_name(m.index, count), m.config) for m in group.members]
    crew = make_crew(config, _members(group.members))
    selection = _selection(sweep, config, where)
    outcome = run_group(config, crew, where, places, console, selection, assess=False)
    if outcome.stopped_by is None and multihost.first():
        told = {"updates": outcome.update, "seconds": outcome.seconds}
        run_dir.replace_text(where / FINISHED, json.dumps(told))
    return outcome.stopped_by


def _members(members: tuple[Member, ...]) -> Members:
    each: dict[str, Any] = {
        name: np.array([getattr(member.config.ppo, name) for member in members], float)
        for name in Hyper.__dataclass_fields__
    }
    return Members(tuple(member.seed for member in members), Hyper(**each))


def _common(members: tuple[Member, ...]) -> dict[str, Any]:
    """Of what is swept, that in which a group's members agree."""
    first = members[0].settings
    return {
        name: value
        for name, value in first.items()
        if all(member.settings[name] == value for member in members)
    }


def _check(sweep: SweepConfig, crew: Crew) -> None:
    spec = crew.trainer.env.spec
    if (sweep.halving or sweep.pbt) and not spec.cooperative:
        raise ConfigError(
            f"{'halving' if sweep.halving else 'pbt'} needs a score that says who is better; in "
            f"{spec.name} teams play against each other, so there is none."
        )


def _selection(sweep: SweepConfig, config: Config, where: Path) -> Selection | None:
    if sweep.halving:
        rungs = rung_updates(config.num_updates, sweep.rungs, sweep.halving_factor)
        return Halving(tuple(rungs), sweep.halving_factor)
    if sweep.pbt:
        names = tuple(name.removeprefix("ppo.") for name in sweep.names)
        every = sweep.pbt_every or config.updates_between_evaluations
        how = (sweep.seed, sweep.pbt_fraction, sweep.pbt_factor)
        return Pbt(every, names, *how, lines=where / EXCHANGES)
    return None


def _create(sweep: SweepConfig, plan: Plan) -> Path:
    """A new directory with the resolved sweep. A name given and in use is refused; one chosen here
    is numbered."""
    config = plan.groups[0].config
    name = f"sweep-{config.algorithm}-{config.env}"
    return run_dir.make("sweep", sweep.sweep_dir, name, {SAVED: to_yaml(sweep)})
