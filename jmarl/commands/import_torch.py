"""python -m jmarl.import_torch [PRESET.yaml] FILE.pt … [--option value …]: make a run of
checkpoints of a torch reference. The options are those of the train command."""

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from jmarl.commands import train_help
from jmarl.commands.arguments import command, read_typed_options
from jmarl.config.formatting import command_line
from jmarl.config.option_names import nested
from jmarl.config.train_config import Config, algorithm_of, applies, build, merged, read_preset
from jmarl.errors import ConfigError
from jmarl.runs.files import return_suffixes
from jmarl.runs.terminal import working

PROG = "python -m jmarl.import_torch [PRESET.yaml] FILE.pt …"
USAGE = f"usage: {PROG} [--option value …]"
# options of training that make no sense here, and why
REFUSED = {
    "resume": "an imported run is new; python -m jmarl.train --resume RUN trains on from it",
    "init_from": "the files are what the run begins with",
    "seeds": "one checkpoint is one run",
}


def parse(arguments: Sequence[str]) -> tuple[Config, dict[str, Any]]:
    """What the checkpoint shows ← preset ← command line; and options that it cannot show."""
    from jmarl.runs.torch_checkpoints import read_checkpoint, seen_options, unseen_options

    path, preset, rest = _files(arguments)
    typed = read_typed_options(Config, PROG, rest)
    for name, why in REFUSED.items():
        if name in typed:
            raise ConfigError(f"{name}={str(typed[name])!r} cannot go with files to import: {why}.")
    given = merged(read_preset(preset) if preset else {}, nested(typed))
    algorithm, checkpoint = algorithm_of(given), read_checkpoint(path)
    seen = seen_options(checkpoint, algorithm)
    below = nested({name: value for name, value in seen.items() if applies(name, algorithm)})
    config = build(merged(below, given) | {"init_from": path})
    return config, unseen_options(checkpoint, config)


def _files(arguments: Sequence[str]) -> tuple[Path, Path | None, list[str]]:
    """The checkpoint, the preset, and the rest of the command line."""
    words = list(itertools.takewhile(lambda word: not word.startswith("-"), arguments))
    presets = [Path(word) for word in words if word.endswith((".yaml", ".yml"))]
    files = [word for word in words if not word.endswith((".yaml", ".yml"))]
    if not files or len(presets) > 1:
        raise ConfigError(f"which checkpoint? Write {PROG}.")
    return Path(",".join(files)), next(iter(presets), None), list(arguments[len(words) :])


def main() -> None:
    with command() as (console, _):
        given = sys.argv[1:]
        if asked := train_help.wanted(given):
            train_help.show(console, build({}), asked == "help-all", USAGE)
            raise SystemExit(0)
        config, unseen = parse(given)
        with working(console, f"playing {config.eval_episodes} episodes, greedy and sampled …"):
            from jmarl.evaluation.torch_import import import_run

            path, line = import_run(config)
        _conclude(config, unseen, path, line, console)


def _conclude(
    config: Config, unseen: dict[str, Any], path: Path, line: dict[str, Any], console: Console
) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    returns = ", ".join(
        f"{team.removeprefix('/')} {line[f'eval/return_mean{team}']:.1f}".strip()
        for team in return_suffixes(line)
    )
    say(f"run: {path}")
    say(f"greedy return over {config.eval_episodes} episodes: {returns}")
    if unseen:
        assumed = ", ".join(f"{name}={value!r}" for name, value in unseen.items())
        say(f"not seen in the checkpoint: {assumed}; give what it was trained with")
    say(f"train on: {command_line('python', '-m', 'jmarl.train', '--resume', path)}")
