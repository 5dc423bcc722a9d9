"""python -m jmarl.sweep [SWEEP.yaml] [--option value …]: search over hyperparameters × seeds."""

import sys
from pathlib import Path
from typing import Any

from pydantic import Field
from rich.console import Console

from jmarl.commands.arguments import command, read_options, refusals
from jmarl.config.formatting import command_line
from jmarl.config.option_names import flat
from jmarl.config.parse_values import typed_base, typed_grid, typed_random
from jmarl.config.sweep_options import SAVED, SweepConfig, SweepOptions, build, outline, read_sweep
from jmarl.errors import ConfigError
from jmarl.sweeps.plan import Plan, plan, shared_config

PROG = "python -m jmarl.sweep [SWEEP.yaml]"
WRITTEN = ("preset", "base", "grid", "random")  # other than in the file, or merged with it
CHANGEABLE = ("quiet", "plots", "devices", "hosts")  # when a sweep is resumed


class CommandLine(SweepOptions):
    """Search over hyperparameters × seeds: a grid, random draws, or both combined.

    Hyperparameters (ppo.lr, ppo.gamma, ppo.entropy_coef, …) are members of one compiled program;
    of other options (algorithm, num_envs, net.hidden, …) each value compiles anew. Names are those
    of `python -m jmarl.train --help`; lr is short for ppo.lr. The results: a ranking with
    intervals, best.yaml to train on with, and plots. An example:

    python -m jmarl.sweep --preset configs/mappo_simple_spread.yaml --base total_steps=500000
    --grid lr=3e-4,1e-3 entropy_coef=0,0.01 --random gamma=uniform:0.9:0.99 --samples 8 --seeds 4
    """

    base: tuple[str, ...] = Field(
        default=(), description="options of all runs over the preset's: name=value …"
    )
    grid: tuple[str, ...] = Field(
        default=(), description="options of which all values are tried: name=value,value …"
    )
    random: tuple[str, ...] = Field(
        default=(),
        description="options that are drawn: name=uniform:low:high, name=log_uniform:low:high or "
        "name=choice:value:value …",
    )


def parse(arguments: list[str]) -> SweepConfig:
    """Defaults ← the file, or the sweep that is resumed ← command line."""
    given = list(arguments)
    file: dict[str, Any] = {}
    if given and not given[0].startswith("-"):
        file = read_sweep(Path(given.pop(0)))
    known = dict(outline(file))
    shown = CommandLine(**{name: value for name, value in known.items() if name not in WRITTEN})
    typed = read_options(shown, PROG, given)
    if typed["resume"] is not None:
        return _resumed(typed, shown, bool(file))
    return build({**file, **typed, **_merged(file, typed)})


def _merged(file: dict[str, Any], typed: dict[str, Any]) -> dict[str, Any]:
    """What is typed goes over the file's by name; an option that the file draws may be typed as a
    grid, and the other way round."""
    base = flat(typed_base(typed["base"]), "--base")
    grid = flat(typed_grid(typed["grid"]), "--grid")
    random = flat(typed_random(typed["random"]), "--random")

    def below(part: str) -> dict[str, Any]:
        found = flat(file.get(part) or {}, part)
        return {name: value for name, value in found.items() if name not in grid | random}

    return {
        "preset": typed["preset"] or file.get("preset"),
        "base": flat(file.get("base") or {}, "base") | base,
        "grid": below("grid") | grid,
        "random": below("random") | random,
    }


def _resumed(typed: dict[str, Any], shown: CommandLine, from_file: bool) -> SweepConfig:
    path = typed["resume"]
    if not (path / SAVED).is_file():
        raise ConfigError(f"resume={str(path)!r} is not a sweep: it has no {SAVED}.")
    before = shown.model_dump()
    changed = {name: value for name, value in typed.items() if value != before[name]}
    changed.pop("resume", None)
    if from_file or set(changed) - set(CHANGEABLE):
        raise ConfigError(
            f"{command_line('--resume', path)} goes on as the sweep began; only "
            f"{', '.join(CHANGEABLE)} can change."
        )
    return build({**read_sweep(path / SAVED), **changed, "resume": path})


def main() -> None:
    with command() as (console, errors):
        sweep = parse(sys.argv[1:])
        members = plan(sweep)
        # only now: --help and refusals need no networks
        from jmarl.execution import cpu_devices, multihost
        from jmarl.sweeps.run import run_sweep

        runs = ((shared_config(sweep, each.config), len(each.members)) for each in members.groups)
        cpu_devices.make_devices(runs)
        with multihost.joined(sweep.hosts, errors, refusals):
            finished = run_sweep(sweep, members, console)
            if multihost.first():
                _conclude(sweep, members, finished, console)
        if finished.stopped_by is not None:
            raise SystemExit(128 + finished.stopped_by)


def _conclude(sweep: SweepConfig, members: Plan, finished: Any, console: Console) -> None:
    from jmarl.sweeps.results import show, write_results

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    path: Path = finished.path
    if finished.stopped_by is not None:
        say("stopped; what was learned is saved.")
        say(f"go on: {command_line('python', '-m', 'jmarl.sweep', '--resume', path)}")
        return
    ranking = write_results(path, members)
    if sweep.plots:
        from jmarl.runs.user_dirs import give_matplotlib_a_directory

        give_matplotlib_a_directory()
        from jmarl.sweeps.plots import write_plots

        write_plots(path, members, ranking)
    show(ranking, console)
    say(f"sweep: {path}")
    if ranking.best is not None:
        again = command_line("python", "-m", "jmarl.train", path / "best.yaml")
        say(f"the best again: {again}")
