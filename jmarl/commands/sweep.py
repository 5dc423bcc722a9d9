"""python -m jmarl.sweep [SWEEP.yaml] [--option value …]: search over hyperparameters × seeds."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from jmarl.commands.arguments import command, exit_on_error, read_options, take_plugins
from jmarl.config.declaration import declared, fields_of
from jmarl.config.formatting import command_line
from jmarl.config.option_names import flat, flat_swept
from jmarl.config.parse_values import typed_base, typed_grid, typed_random
from jmarl.config.preset_lines import located
from jmarl.config.stored import without_removed
from jmarl.config.sweep_options import SweepConfig, SweepOptions, search
from jmarl.config.sweep_values import SAVED, build, outline, read_sweep
from jmarl.config.train_config import applies
from jmarl.errors import ConfigError, InapplicableOptionError, RunError
from jmarl.plugins import load_plugins
from jmarl.runs.directory import check_plugins
from jmarl.sweeps.plan import Plan, plan, shared_config

if TYPE_CHECKING:
    from jmarl.sweeps.scores import Ranking

PROG = "python -m jmarl.sweep [SWEEP.yaml]"
# other than in the file, merged with it, or not at all
WRITTEN = ("preset", "base", "grid", "random", "resolved")


class CommandLine(SweepOptions):
    """Search over hyperparameters × seeds: a grid, random draws, or both combined.

    Members that differ only in hyperparameters (ppo.lr, ppo.gamma, ppo.entropy_coef, …) share one
    compiled program; each value of another option (algorithm, num_envs, net.hidden, …) compiles
    anew. Names are those of `python -m jmarl.train --help`; lr is short for ppo.lr. Where algorithm
    is swept, each member gets the options that its algorithm uses. The results are a ranking with
    intervals, best.yaml to train on with, and plots. An example:

    python -m jmarl.sweep --preset configs/mappo_simple_spread.yaml --base total_steps=500000
    --grid lr=3e-4,1e-3 entropy_coef=0,0.01 --random gamma=uniform:0.9:0.99 --samples 8 --seeds 4
    """

    base: tuple[str, ...] = search(
        (), "Options of all runs; they override the preset's: name=value …"
    )
    grid: tuple[str, ...] = search((), "Options with all values to try: name=value,value …")
    random: tuple[str, ...] = search(
        (),
        "Options to draw: name=uniform:low:high, name=log_uniform:low:high or "
        "name=choice:value:value …",
    )


# Options that may change when a sweep is resumed.
RESUMABLE = tuple(
    dict.fromkeys(
        name.partition(".")[0] for name, info in fields_of(CommandLine) if declared(info).resumable
    )
)


def parse(arguments: list[str]) -> SweepConfig:
    """Defaults ← the file, or the sweep that is resumed ← command line."""
    given, plugins = take_plugins(arguments)
    path = Path(given.pop(0)) if given and not given[0].startswith("-") else None
    file = read_sweep(path) if path else {}
    try:
        return _parsed(given, file, plugins)
    except InapplicableOptionError as error:
        raise located(error, path, ("base", "grid", "random")) if path else error from None


def _parsed(given: list[str], file: dict[str, Any], plugins: Sequence[str]) -> SweepConfig:
    known = dict(outline(file))
    shown = CommandLine(**{name: value for name, value in known.items() if name not in WRITTEN})
    typed = read_options(shown, PROG, given)
    if typed["resume"] is not None:
        return _resumed(typed, shown, bool(file), plugins)
    merged = _merged(file, typed)
    if plugins:
        merged["base"]["plugins"] = (*merged["base"].get("plugins", ()), *plugins)
    return build({**file, **typed, **merged})


def _merged(file: dict[str, Any], typed: dict[str, Any]) -> dict[str, Any]:
    """What is typed goes over the file's by name; an option that the file draws may be typed as a
    grid, and the other way round."""
    base = flat(typed_base(typed["base"]), "--base")
    grid = flat_swept(typed_grid(typed["grid"]), "--grid")
    random = flat_swept(typed_random(typed["random"]), "--random")

    def below(part: str) -> dict[str, Any]:
        found = flat(file.get(part) or {}, part)
        return {name: value for name, value in found.items() if name not in grid | random}

    return {
        "preset": typed["preset"] or file.get("preset"),
        "base": flat(file.get("base") or {}, "base") | base,
        "grid": below("grid") | grid,
        "random": below("random") | random,
    }


def _resumed(
    typed: dict[str, Any], shown: CommandLine, from_file: bool, plugins: Sequence[str]
) -> SweepConfig:
    path = typed["resume"]
    if not (path / SAVED).is_file():
        raise ConfigError(f"resume={str(path)!r} is not a sweep: it has no {SAVED}.")
    before = shown.model_dump()
    changed = {name: value for name, value in typed.items() if value != before[name]}
    changed.pop("resume", None)
    if from_file:
        raise _goes_on_as_it_began(path)
    return resumed(path, {**changed, "plugins": plugins})


def resumed(path: Path, changed: dict[str, Any]) -> SweepConfig:
    """The sweep in `path`, with what may change, and plug-ins that are named once more."""
    if not (path / SAVED).is_file():
        raise ConfigError(f"resume={str(path)!r} is not a sweep: it has no {SAVED}.")
    if set(changed) - {*RESUMABLE, "plugins"}:
        raise _goes_on_as_it_began(path)
    again = load_plugins(changed.get("plugins", ()))
    stored = _stored(path / SAVED)
    check_plugins(path, again)
    others = {name: value for name, value in changed.items() if name != "plugins"}
    return build({**stored, **others, "resume": path})


def _goes_on_as_it_began(path: Path) -> ConfigError:
    return ConfigError(
        f"{command_line('--resume', path)} goes on as the sweep began; only "
        f"{', '.join(RESUMABLE)} can change."
    )


def _stored(path: Path) -> dict[str, Any]:
    """A sweep as it began. Earlier versions kept options in base that no algorithm used, and had no
    confirmation."""
    values = read_sweep(path)
    base = without_removed(values.get("base") or {})
    algorithms = outline({**values, "base": base}).algorithms
    used = {n: v for n, v in base.items() if any(applies(n, each) for each in algorithms)}
    return {"confirm_seeds": 0, **values, "base": used}


class Searched(NamedTuple):
    """A sweep that has ended, or was stopped."""

    path: Path
    ranking: "Ranking | None"  # of its settings; None: stopped
    stopped_by: int | None  # the signal


def search_members(sweep: SweepConfig, members: Plan, console: Console) -> Searched:
    """Train all members; rank their settings, and draw them."""
    from jmarl.execution import multihost
    from jmarl.sweeps.run import run_sweep

    trained = run_sweep(sweep, members, console)
    path = trained.path
    if trained.stopped_by is not None or not multihost.is_main_process():
        return Searched(path, None, trained.stopped_by)
    from jmarl.sweeps.results import write_results

    ranking = write_results(path, members)
    if sweep.plots:
        from jmarl.runs.user_dirs import give_matplotlib_a_directory

        give_matplotlib_a_directory()
        from jmarl.sweeps.plots import write_plots

        write_plots(path, members, ranking)
    return Searched(path, ranking, None)


def make_devices(sweep: SweepConfig, members: Plan) -> None:
    from jmarl.execution import cpu_devices

    runs = ((shared_config(sweep, each.config), len(each.members)) for each in members.groups)
    cpu_devices.make_devices(runs)


def main() -> None:
    with command() as (console, errors):
        sweep = parse(sys.argv[1:])
        members = plan(sweep)
        # only now: --help and refusals need no networks
        from jmarl.execution import multihost

        make_devices(sweep, members)
        with multihost.distributed_session(sweep.hosts, errors, exit_on_error):
            finished = search_members(sweep, members, console)
            if multihost.is_main_process():
                _conclude(finished, console)
        if finished.stopped_by is not None:
            raise SystemExit(128 + finished.stopped_by)


def _conclude(finished: Searched, console: Console) -> None:
    from jmarl.runs.files import BEST
    from jmarl.sweeps.results import show

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    path, ranking = finished.path, finished.ranking
    if ranking is None:
        say("stopped; what was learned is saved.")
        say(f"go on: {command_line('python', '-m', 'jmarl.sweep', '--resume', path)}")
        return
    show(ranking, console)
    say(f"sweep: {path}")
    if all(one.failed for one in ranking.members):
        why = next((f": {one.reason}" for one in ranking.members if one.reason), "")
        raise RunError(f"every member has failed, so that there is no best setting{why}.")
    if ranking.best is not None:
        say(f"the best again: {command_line('python', '-m', 'jmarl.train', path / BEST)}")
