"""python -m jmarl.train [PRESET.yaml] [--option value …]: train a team."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from jmarl.commands import train_help
from jmarl.commands.arguments import command, exit_on_error, read_typed_options, take_plugins
from jmarl.config.formatting import command_line
from jmarl.config.option_names import nested, overridden
from jmarl.config.preset_lines import located
from jmarl.config.train_config import Config, build, command_line_model, read_preset
from jmarl.errors import ConfigError, InapplicableOptionError
from jmarl.runs.files import return_suffixes

PROG = "python -m jmarl.train [PRESET.yaml]"
LIST = "--list-worlds"


def parse(arguments: list[str]) -> Config:
    """Defaults ← preset, or the run that is resumed ← command line."""
    given, plugins = take_plugins(arguments)
    path = Path(given.pop(0)) if given and not given[0].startswith("-") else None
    if (resume := _typed("--resume", given)) is not None:
        return _resumed(Path(resume), path, given, plugins)
    preset = _preset(path, given, plugins)
    typed = read_typed_options(command_line_model(), PROG, given)
    try:
        build(preset)  # refuses a fault of the preset first
        return build(overridden(preset, nested(typed)))
    except InapplicableOptionError as error:
        from_preset = path if not typed.keys() & set(error.options) else None
        raise located(error, from_preset) if from_preset else error from None


def _preset(path: Path | None, given: list[str], plugins: Sequence[str]) -> dict[str, Any]:
    """The preset's values, with the algorithm and the plug-ins that were typed."""
    preset = _with_plugins(read_preset(path) if path else {}, plugins)
    algorithm = _typed("--algorithm", given)
    return preset if algorithm is None else {**preset, "algorithm": algorithm}


def _with_plugins(values: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {**values, "plugins": (*values.get("plugins", ()), *names)} if names else values


def _resumed(run: Path, path: Path | None, given: list[str], plugins: Sequence[str]) -> Config:
    from jmarl.runs.single import resumed

    asked = command_line("--resume", run)
    if path:
        raise ConfigError(f"{asked} goes on with its own preset; give no other.")
    if (run_dir := _typed("--run-dir", given)) is not None:
        raise ConfigError(
            f"run_dir={run_dir!r} cannot go with {asked}: a resumed run stays in its "
            "directory. Leave --run-dir out, or copy the run first."
        )
    typed = nested(read_typed_options(command_line_model(), PROG, given))
    return resumed(run, _with_plugins(typed, plugins))


def _typed(option: str, arguments: list[str]) -> str | None:
    """What follows an option on the command line, before the line is read as a whole. The last
    one counts, and `_` is as good as `-`, as tyro has it."""
    found = None
    for i, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == option:
            found = value if equals else next(iter(arguments[i + 1 :]), None)
    return found


def main() -> None:
    with command() as (console, errors):
        if LIST in sys.argv[1:]:
            list_worlds(console, [word for word in sys.argv[1:] if word != LIST])
            raise SystemExit(0)
        if asked := train_help.wanted(sys.argv[1:]):
            given, plugins = take_plugins(sys.argv[1:])
            path = Path(given[0]) if not given[0].startswith("-") else None
            train_help.show(console, build(_preset(path, given, plugins)), asked == "help-all")
            raise SystemExit(0)
        config = parse(sys.argv[1:])
        # only now: --help and refusals need no networks
        from jmarl.execution import cpu_devices, multihost
        from jmarl.replays.best_gif import draw_best
        from jmarl.runs.single import run

        cpu_devices.make_devices([(config, config.seeds)])
        with multihost.distributed_session(config.hosts, errors, exit_on_error):
            finished = run(config, console, draw_best)
            if multihost.is_main_process():
                _conclude(config, finished.outcome, finished.path, console)
        if finished.outcome.stopped_by is not None:
            raise SystemExit(128 + finished.outcome.stopped_by)


def list_worlds(console: Console, arguments: list[str]) -> None:
    """One line for each world, those of plug-ins included, or why jmarl does not make it."""
    given, _ = take_plugins(arguments)
    if given:
        raise ConfigError(f"{LIST} goes with no option but --plugin; {given[0]!r} is given.")
    from jmarl.envs.listing import list_worlds as listed

    worlds = listed()
    width = max(len(world.name) for world in worlds)
    for world in worlds:
        console.print(
            f"{world.name:<{width}}  {world}", markup=False, highlight=False, soft_wrap=True
        )


def _conclude(config: Config, outcome: Any, path: Path, console: Console) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    again = command_line("python", "-m", "jmarl.train", "--resume", path)
    if outcome.stopped_by is not None:
        say(f"stopped after update {outcome.update}; what was learned is saved.")
        say(f"go on: {again}")
        return
    evaluations = [entry for entry in outcome.evaluations if "absolute" not in entry]
    failed = len(outcome.failed)
    lost = f"; {failed} failed" if failed else ""
    of = f" (mean of {config.seeds - failed} seeds{lost})" if config.seeds > 1 else ""
    say(f"run: {path}")
    learned = _learned(evaluations, outcome.update)
    say(f"greedy return over {config.eval_episodes} episodes: {learned}{of}")
    if config.seeds > 1:
        from jmarl.runs.single import seeds_summary

        best = seeds_summary(outcome)["absolute"]
        figures = "; ".join(_over_seeds(best, team) for team in return_suffixes(evaluations[0]))
        say(f"best parameters of each seed: {figures}")
    say(f"more: {again} {config.more(2 * outcome.update)}")


def _learned(evaluations: list[dict[str, Any]], last: int) -> str:
    """The first and the last return, of opposing teams each one's."""
    first, steps = evaluations[0]["update"], [evaluations[at]["steps"] for at in (0, -1)]
    returns = []
    for team in return_suffixes(evaluations[0]):
        before, after = (_mean_return(evaluations, update, team) for update in (first, last))
        figures = f"{before:.1f} at {steps[0]:,} steps, {after:.1f} at {steps[1]:,}"
        returns.append(_named(team, figures))
    return "; ".join(returns)


def _over_seeds(best: dict[str, Any], team: str) -> str:
    mean, middle, low, high = (
        best[f"return_{name}{team}"] for name in ("mean", "iqm", "iqm_low", "iqm_high")
    )
    known = best["seeds"] > 1  # of a single seed there is no interval
    within = f" (95% interval over seeds {low:.1f} … {high:.1f})" if known else ""
    return _named(team, f"{mean:.1f} on average, IQM {middle:.1f}{within}")


def _named(team: str, figures: str) -> str:
    return f"{team.removeprefix('/')} {figures}" if team else figures


def _mean_return(evaluations: list[dict[str, Any]], update: int, team: str) -> float:
    """Over the seeds that have not failed."""
    whole = [e for e in evaluations if "failed" not in e]
    returns = [e[f"eval/return_mean{team}"] for e in whole if e["update"] == update]
    return sum(returns) / len(returns)
