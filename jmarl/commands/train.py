"""python -m jmarl.train [PRESET.yaml] [--option value …]: train a team."""

import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from jmarl.commands.arguments import command, read_options, refusals
from jmarl.config.formatting import command_line
from jmarl.config.train_config import Config, build, read_preset
from jmarl.errors import ConfigError


def parse(arguments: list[str]) -> Config:
    """Defaults ← preset, or the run that is resumed ← command line."""
    given = list(arguments)
    preset = {}
    if given and not given[0].startswith("-"):
        preset = read_preset(Path(given.pop(0)))
    if (resume := _typed("--resume", given)) is not None:
        from jmarl.runs.single import resumed_values

        asked = command_line("--resume", resume)
        if preset:
            raise ConfigError(f"{asked} goes on with its own preset; give no other.")
        if (run_dir := _typed("--run-dir", given)) is not None:
            raise ConfigError(
                f"run_dir={run_dir!r} cannot go with {asked}: a resumed run stays in its "
                "directory. Leave --run-dir out, or copy the run first."
            )
        preset = resumed_values(Path(resume))
    if (algorithm := _typed("--algorithm", given)) is not None:
        preset = {**preset, "algorithm": algorithm}  # its own defaults are then the ones shown
    prog = "python -m jmarl.train [PRESET.yaml]"
    config = build(read_options(build(preset), prog, given))
    if config.resume is not None:
        from jmarl.runs.single import check_continuation

        check_continuation(config)
    return config


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
        config = parse(sys.argv[1:])
        # only now: --help and refusals need no networks
        from jmarl.execution import cpu_devices, multihost
        from jmarl.replays.best_gif import draw_best
        from jmarl.runs.single import run

        cpu_devices.make_devices([(config, config.seeds)])
        with multihost.joined(config.hosts, errors, refusals):
            finished = run(config, console, draw_best)
            if multihost.first():
                _tell(config, finished.outcome, finished.path, console)
        if finished.outcome.stopped_by is not None:
            raise SystemExit(128 + finished.outcome.stopped_by)


def _tell(config: Config, outcome: Any, path: Path, console: Console) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    again = command_line("python", "-m", "jmarl.train", "--resume", path)
    if outcome.stopped_by is not None:
        say(f"stopped after update {outcome.update}; what was learned is saved.")
        say(f"go on: {again}")
        return
    told = [entry for entry in outcome.evaluations if "absolute" not in entry]
    first, last = (_mean_return(told, update) for update in (told[0]["update"], outcome.update))
    of = f" (mean of {config.seeds} seeds)" if config.seeds > 1 else ""
    say(f"run: {path}")
    say(
        f"greedy return over {config.eval_episodes} episodes: {first:.1f} at {told[0]['steps']:,} "
        f"steps, {last:.1f} at {told[-1]['steps']:,}{of}"
    )
    if config.seeds > 1:
        from jmarl.runs.single import seeds_told

        best = seeds_told(outcome)["absolute"]
        low, high = best["return_iqm_low"], best["return_iqm_high"]
        say(
            f"best parameters of each seed: {best['return_mean']:.1f} on average, IQM "
            f"{best['return_iqm']:.1f} ({low:.1f} … {high:.1f})"
        )
    say(f"more: {again} {config.more(2 * outcome.update)}")


def _mean_return(evaluations: list[dict[str, Any]], update: int) -> float:
    """Over seeds."""
    returns = [e["eval/return_mean"] for e in evaluations if e["update"] == update]
    return sum(returns) / len(returns)
