"""python -m jmarl.train [PRESET.yaml] [--option value …]: train a team."""

import sys
from pathlib import Path

from rich.console import Console

from jmarl.cli import read_options
from jmarl.config import Config, build, read_preset
from jmarl.errors import ConfigError


def parse(arguments: list[str]) -> Config:
    """Defaults ← preset ← command line."""
    given = list(arguments)
    preset = {}
    if given and not given[0].startswith("-"):
        preset = read_preset(Path(given.pop(0)))
    if algorithm := _typed("--algorithm", given):
        preset = {**preset, "algorithm": algorithm}  # its own defaults are then the ones shown
    prog = "python -m jmarl.train [PRESET.yaml]"
    return build(read_options(build(preset), prog, given))


def _typed(option: str, arguments: list[str]) -> str | None:
    """What follows an option on the command line, before the line is read as a whole."""
    for i, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == option:
            return value if equals else next(iter(arguments[i + 1 :]), None)
    return None


def main() -> None:
    console = Console()
    try:
        config = parse(sys.argv[1:])
        from jmarl.runner import run  # only now: --help and refusals need no networks

        outcome = run(config, console)
    except ConfigError as error:
        Console(stderr=True, soft_wrap=True).print(str(error), style="red", markup=False)
        raise SystemExit(2) from None
    first, last = outcome.evaluations[0], outcome.evaluations[-1]
    console.print(
        f"greedy return over {config.eval_episodes} episodes: "
        f"{first['eval/return_greedy']:.1f} before, {last['eval/return_greedy']:.1f} after "
        f"{last['steps']:,} steps"
    )


if __name__ == "__main__":
    main()
