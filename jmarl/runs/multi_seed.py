"""Members that train together: each has a directory like that of a run alone."""

from pathlib import Path
from typing import Any

from rich.console import Console

from jmarl.config.train_config import Config
from jmarl.errors import AllFailedError
from jmarl.execution import multihost
from jmarl.execution.population import Population
from jmarl.learning.ppo_loss import HyperParams
from jmarl.runs.callbacks import Callbacks
from jmarl.runs.files import EVALUATIONS, SUMMARY, read_lines, write_json
from jmarl.runs.logs import write_marl_eval
from jmarl.runs.loop import LoopResult, Selection
from jmarl.runs.recorded import run_recorded
from jmarl.runs.recorder import MemberDirectory, RunRecorder
from jmarl.runs.summaries import write_summary
from jmarl.types import float_dtype


def run_group(
    config: Config,
    population: Population,
    path: Path,
    members: list[MemberDirectory],
    console: Console,
    selection: Selection | None = None,
    assess: bool = True,
    callbacks: Callbacks | None = None,
) -> LoopResult:
    """Train to the end of the budget, from the latest checkpoint in `path` if there is one."""
    recorder = RunRecorder(path, config, members)
    try:
        given = (config, population, recorder, path, console, selection, assess, callbacks)
        outcome = run_recorded(*given)
    except AllFailedError as error:
        if multihost.is_main_process():
            _store_failures(members, error)
        raise
    if multihost.is_main_process():
        summarise_members(members, outcome, population.hyper)
    return outcome


def summarise_members(
    members: list[MemberDirectory], outcome: LoopResult, hyper: HyperParams
) -> None:
    """The last files of every member; `hyper`: leaves `[M]`."""
    for place, member in enumerate(members):
        lines = read_lines(member.path / EVALUATIONS)
        reached = lines[-1]["update"] if lines else 0  # halving drops some before the end
        further: dict[str, Any] = {
            "hyper": {name: _short(x[place]) for name, x in hyper._asdict().items()}
        }
        if place in outcome.failed:
            further |= {"failed": outcome.failed[place]}
        write_marl_eval(member.path, member.config, {member.config.seed: member.path})
        write_summary(member.path, member.config, outcome._replace(update=reached), further)


def _store_failures(members: list[MemberDirectory], error: AllFailedError) -> None:
    """Of members that were in training when all had failed; nothing was evaluated after that."""
    for place, what in error.failed.items():
        config = members[place].config
        about = {"algorithm": config.algorithm, "env": config.env, "seed": config.seed}
        reached = {"updates": error.update, "steps": error.update * config.steps_per_update}
        known = {"finished": False, "failed": what, **reached}
        write_json(members[place].path / SUMMARY, about | known)


def _short(value: Any) -> float:
    """The decimal number that a person would write: 0.0007, not 0.000699999975040555."""
    return float(str(float_dtype().type(value)))
