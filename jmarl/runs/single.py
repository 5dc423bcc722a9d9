"""A run on disk: created or resumed, trained, summarised."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from jmarl.config.formatting import command_line
from jmarl.config.known_options import OPTIONS
from jmarl.config.option_names import overridden
from jmarl.config.stored import read_stored
from jmarl.config.sweep_values import SAVED
from jmarl.config.train_config import Config, applicable, build
from jmarl.errors import ConfigError
from jmarl.execution import multihost
from jmarl.execution.population import Population, make_population
from jmarl.plugins import load_plugins
from jmarl.runs import directory as run_dir
from jmarl.runs.callbacks import Callbacks
from jmarl.runs.files import (
    CONFIG,
    EVALUATIONS,
    is_member,
    is_run,
    read_lines,
    read_membership,
    return_suffixes,
    seed_name,
)
from jmarl.runs.logs import write_marl_eval
from jmarl.runs.loop import LoopResult
from jmarl.runs.multi_seed import run_group
from jmarl.runs.recorded import run_recorded
from jmarl.runs.recorder import MemberDirectory, RunRecorder
from jmarl.runs.summaries import write_summary
from jmarl.runs.warm_start import load_warm_start
from jmarl.stats import summary


class RunResult(NamedTuple):
    outcome: LoopResult
    path: Path
    population: Population


# What a command does last: (config, population, outcome, directories of the members, console)
Ending = Callable[[Config, Population, LoopResult, list[Path], Console], None]


def run(
    config: Config,
    console: Console,
    ending: Ending | None = None,
    callbacks: Callbacks | None = None,
) -> RunResult:
    """Train to the end of the budget, into a new directory or the one that is resumed."""
    if config.resume is not None:
        check_not_member(config.resume)
    population = make_population(config)  # refuses what cannot be built: nothing is on disk yet
    population.warm_start = load_warm_start(config, population.trainer, config.resume)
    made = multihost.broadcast_from_main(
        lambda: os.fsencode(config.resume or run_dir.create(config))
    )
    path = Path(os.fsdecode(made))
    seeds = member_directories(config, population.seeds, path)
    if seeds:
        outcome = run_group(config, population, path, seeds, console, callbacks=callbacks)
    else:
        given = (config, population, RunRecorder(path, config), path, console)
        outcome = run_recorded(*given, callbacks=callbacks)
    directories = [seed.path for seed in seeds] or [path]
    if ending is not None:
        ending(config, population, outcome, directories, console)
    if multihost.is_main_process():
        summarise(config, path, dict(zip(population.seeds, directories, strict=True)), outcome)
    return RunResult(outcome, path, population)


def check_not_member(path: Path) -> None:
    """Refuse to resume one of several runs that train together: they resume together."""
    if not is_member(path):
        return
    membership = read_membership(path)
    group = membership.group if membership else None
    sweep = group.parent if group else None
    if group is not None and is_run(group):
        how = f"Resume its group: {command_line('python', '-m', 'jmarl.train', '--resume', group)}"
    elif sweep is not None and (sweep / SAVED).is_file():
        how = f"Resume its sweep: {command_line('python', '-m', 'jmarl.sweep', '--resume', sweep)}"
    else:
        how = "Its group, which has the checkpoints, is not there"
    raise ConfigError(f"{str(path)!r} was trained together with others. {how}.")


def member_directories(config: Config, seeds: Sequence[int], path: Path) -> list[MemberDirectory]:
    """Of several seeds, each one's; none for a single one."""
    if config.seeds == 1:
        return []
    alone = {"seeds": 1, "run_dir": None, "resume": None, "members_per_batch": None}
    return [
        MemberDirectory(path / seed_name(seed), config.model_copy(update=alone | {"seed": seed}))
        for seed in seeds
    ]


def summarise(config: Config, path: Path, seeds: dict[int, Path], outcome: LoopResult) -> None:
    """The last files of a run: whoever finds them knows that nothing is missing."""
    write_marl_eval(path, config, seeds)
    further = None
    if config.seeds > 1:
        lines = [line for seed in seeds.values() for line in read_lines(seed / EVALUATIONS)]
        further = seeds_summary(outcome._replace(evaluations=lines))
    write_summary(path, config, outcome, further)


def seeds_summary(outcome: LoopResult) -> dict[str, Any]:
    """Statistics over seeds of their mean returns, by team where teams are opponents: in the last
    evaluation, and of the best parameters. Seeds that failed are counted, and left out."""
    figures: dict[str, Any] = {"evaluation": None, "absolute": None}
    for case, prefix, absolute in (("evaluation", "eval", False), ("absolute", "absolute", True)):
        last = {e["member"]: e for e in outcome.evaluations if ("absolute" in e) == absolute}
        whole = [entry for entry in last.values() if "failed" not in entry]
        if whole:
            figures[case] = {"seeds": len(whole), "failed": len(last) - len(whole)}
            for team in return_suffixes(whole[0]):
                returns = np.array([entry[f"{prefix}/return_mean{team}"] for entry in whole])
                figures[case] |= {f"return_{name}{team}": v for name, v in summary(returns).items()}
    return figures


def resumed_values(path: Path) -> dict[str, Any]:
    """The configuration of the run in `path`, to be continued."""
    if not is_run(path):
        raise ConfigError(f"resume={str(path)!r} is not a run: it has no {CONFIG}.")
    return read_stored(path / CONFIG) | {"resume": str(path)}


def resumed(path: Path, given: Mapping[str, Any]) -> Config:
    """The configuration of the run in `path`, with the options that are given, section by section.
    Options of the environment replace all that the run had; plug-ins are added to its own."""
    again = load_plugins(given.get("plugins", ()))
    values = resumed_values(path)
    run_dir.check_plugins(path, again)
    given = {**given, "plugins": (*values.get("plugins", ()), *again)}
    values = applicable(values | {name: given[name] for name in ("algorithm",) if name in given})
    config = build(overridden(values, dict(given)))
    check_continuation(config)
    return config


def check_continuation(config: Config) -> None:
    """Refuse to resume with another network, environment or batch: only options that are declared
    resumable may change, and traced ones. Nothing of them is in the state or in the program's
    shapes."""
    assert config.resume is not None
    before = build(read_stored(config.resume / CONFIG))
    changed = [
        f"{name} was {was!r}, now {now!r}"
        for name, (was, now) in run_dir.changes(before, config).items()
        if not (OPTIONS[name].resumable or OPTIONS[name].traced)
    ]
    if changed:
        raise ConfigError(
            f"a run resumes as it was, but {'; '.join(changed)}. Start a new run instead."
        )
