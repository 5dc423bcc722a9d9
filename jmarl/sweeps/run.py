"""Trains a sweep: one group of members after the other, each with its own compiled program."""

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from jmarl.algorithms.hyper import make_hyper
from jmarl.config.formatting import formatted, listed
from jmarl.config.sweep_options import SweepConfig
from jmarl.config.sweep_values import SAVED, to_yaml
from jmarl.config.train_config import Config
from jmarl.errors import AllFailedError, ConfigError
from jmarl.execution import multihost
from jmarl.execution.members import Members
from jmarl.execution.population import Population, make_population
from jmarl.runs import directory as run_dir
from jmarl.runs.files import (
    CHOSEN,
    CONFIRMATION,
    EXCHANGES,
    GROUP_FINISHED,
    group_name,
    member_name,
    read_json,
    seed_name,
    write_json,
)
from jmarl.runs.formats import check_directory
from jmarl.runs.loop import Selection
from jmarl.runs.multi_seed import run_group
from jmarl.runs.recorder import MemberDirectory
from jmarl.runs.warm_start import load_warm_start
from jmarl.sweeps.plan import (
    Member,
    Plan,
    ProgramGroup,
    confirmation,
    resolved,
    shared_config,
)
from jmarl.sweeps.schedulers import Halving, Pbt
from jmarl.sweeps.scores import last_evaluations, rank, schedules
from jmarl.sweeps.selection import rung_updates
from jmarl.types import float_dtype


class SweepResult(NamedTuple):
    path: Path
    stopped_by: int | None  # the signal that stopped it


def run_sweep(sweep: SweepConfig, plan: Plan, console: Console) -> SweepResult:
    """Train all members, into a new directory or the one that is resumed; then the best setting
    once more, with fresh seeds."""
    for number, group in enumerate(plan.groups):
        config = shared_config(sweep, group.config)
        population = make_population(config, _members(group.members))
        _check(sweep, population)
        there = sweep.resume and sweep.resume / group_name(number)
        load_warm_start(config, population.trainer, there)  # refused before anything is on disk
    made = multihost.broadcast_from_main(lambda: os.fsencode(sweep.resume or _create(sweep, plan)))
    path = Path(os.fsdecode(made))
    check_directory(path)
    with run_dir.lock(path) if multihost.is_main_process() else contextlib.nullcontext():
        for number, group in enumerate(plan.groups):
            stopped_by = _run_group(sweep, plan, number, group, path, console)
            if stopped_by is not None:
                return SweepResult(path, stopped_by)
        return SweepResult(path, _confirm(sweep, plan, path, console))


def _run_group(
    sweep: SweepConfig, plan: Plan, number: int, group: ProgramGroup, path: Path, console: Console
) -> int | None:
    """Train one group of the search. Returns the signal that stopped it, if any."""
    of = ", ".join(f"{k}={v}" for k, v in _common(group.members).items())
    note = f"group {number + 1} of {len(plan.groups)}: {len(group.members)} members, {of}"
    config, count = shared_config(sweep, group.config), len(plan.members)
    where = path / group_name(number)
    return _train(
        config,
        group,
        where,
        [path / member_name(member.index, count) for member in group.members],
        console,
        note if len(plan.groups) > 1 else "",
        _selection(sweep, config, group, where),
    )


def _confirm(sweep: SweepConfig, plan: Plan, path: Path, console: Console) -> int | None:
    """Train the best setting with seeds that the search has not seen: being the best of many, its
    own figure is too high. Returns the signal that stopped it, if any."""
    if not sweep.confirmations:
        return None
    where = path / CONFIRMATION
    chosen = multihost.broadcast_from_main(lambda: _chosen(sweep, plan, path, where).encode())
    known = json.loads(chosen)
    if not known:
        return None
    group = confirmation(plan, known["setting"], len(known["seeds"]))
    first, *_ = group.members
    of = formatted(first.settings) or "the only setting"
    note = f"the best setting once more, with fresh seeds {listed(map(str, known['seeds']))}: {of}"
    directories = [where / seed_name(member.seed) for member in group.members]
    return _train(
        shared_config(sweep, group.config), group, where, directories, console, note, None
    )


def _chosen(sweep: SweepConfig, plan: Plan, path: Path, where: Path) -> str:
    """The best setting of the search, as JSON; empty if all have failed. It is decided once."""
    if not (known := read_json(where / CHOSEN)):
        best = rank(plan, last_evaluations(path, plan), schedules(path, plan)).best
        if best is None:
            return "{}"
        group = confirmation(plan, best.setting, sweep.confirmations)
        known = {"setting": best.setting, "seeds": [member.seed for member in group.members]}
        where.mkdir(exist_ok=True)
        write_json(where / CHOSEN, known)
    return json.dumps(known)


def _train(
    config: Config,
    group: ProgramGroup,
    where: Path,
    directories: Sequence[Path],
    console: Console,
    note: str,
    selection: Selection | None,
) -> int | None:
    """Train a group, unless it has finished. Returns the signal that stopped it, if any."""
    finished = where / GROUP_FINISHED
    if multihost.broadcast_from_main(lambda: str(finished.exists()).encode()) == b"True":
        return None
    if note and not config.quiet and multihost.is_main_process():
        console.print(note, markup=False, soft_wrap=True)
    if multihost.is_main_process():
        where.mkdir(exist_ok=True)
    places = [
        MemberDirectory(directory, member.config)
        for directory, member in zip(directories, group.members, strict=True)
    ]
    population = make_population(config, _members(group.members))
    population.warm_start = load_warm_start(config, population.trainer, where)
    try:
        outcome = run_group(config, population, where, places, console, selection, assess=False)
    except AllFailedError as error:  # other groups may do better
        if not config.quiet and multihost.is_main_process():
            console.print(f"all members failed: {error}", markup=False, soft_wrap=True)
        about = {"updates": error.update, "failed": len(error.failed)}
    else:
        if outcome.stopped_by is not None:
            return outcome.stopped_by
        about = {"updates": outcome.update, "seconds": outcome.seconds}
    if multihost.is_main_process():
        write_json(finished, about)
    return None


def _members(members: tuple[Member, ...]) -> Members:
    """In the precision of checkpoints, so that a resumed sweep continues with the same numbers."""
    each = [make_hyper(member.config) for member in members]
    stacked = jax.tree.map(lambda *numbers: np.array(numbers, float_dtype()), *each)
    return Members(tuple(member.seed for member in members), stacked)


def _common(members: tuple[Member, ...]) -> dict[str, Any]:
    """The swept options that are equal in all members."""
    first = members[0].settings
    return {
        name: value
        for name, value in first.items()
        if all(member.settings[name] == value for member in members)
    }


def _check(sweep: SweepConfig, population: Population) -> None:
    spec = population.trainer.env.spec
    if (sweep.halving or sweep.pbt) and not spec.cooperative:
        raise ConfigError(
            f"{'halving' if sweep.halving else 'pbt'} needs a score that says who is better; in "
            f"{spec.name} teams play against each other, so there is none."
        )


def _selection(
    sweep: SweepConfig, config: Config, group: ProgramGroup, where: Path
) -> Selection | None:
    if sweep.halving:
        rungs = rung_updates(config.num_updates, sweep.rungs, sweep.halving_factor)
        settings = tuple(member.setting for member in group.members)
        return Halving(tuple(rungs), sweep.halving_factor, settings)
    if sweep.pbt:
        names = {name.rpartition(".")[2]: name for name in sweep.names}
        every = sweep.pbt_every or config.updates_between_evaluations
        how = (sweep.seed, sweep.pbt_fraction, sweep.pbt_factor)
        return Pbt(every, names, *how, lines=where / EXCHANGES)
    return None


def _create(sweep: SweepConfig, plan: Plan) -> Path:
    """Create the sweep's directory, with the resolved options of every setting."""
    config = plan.groups[0].config
    run_dir.check_loggers(config)
    name = f"sweep-{config.algorithm}-{config.env}"
    begun = {"confirm_seeds": sweep.confirmations, "resolved": resolved(plan)}
    text = to_yaml(sweep.model_copy(update=begun))
    return run_dir.make("sweep", sweep.sweep_dir, name, {SAVED: text})
