"""python -m jmarl.evaluate RUN [--option value …]: score a trained policy."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.table import Table

from jmarl.commands.arguments import check_output, command, read_run_command, renamed
from jmarl.config.combinations import LARGEST_SEED
from jmarl.config.formatting import command_line
from jmarl.errors import ConfigError, RunError
from jmarl.runs.files import EPISODES
from jmarl.runs.terminal import working

if TYPE_CHECKING:
    from jmarl.evaluation.trained_policy import TrainedPolicy


class Options(BaseModel):
    """Score the policy of a run, in the world it was trained in or another."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    which: Literal["best", "latest"] = Field(default="best", description="Checkpoint to load.")
    world: Literal["native", "mpe2"] = Field(
        default="native", description="Play in jmarl's own environments, or in Farama's mpe2."
    )
    episodes: int = Field(
        default=1024, ge=1, description="Number of episodes, each for greedy and sampled."
    )
    seed: int = Field(
        default=1, ge=0, le=LARGEST_SEED, description="Random seed of initial states and actions."
    )
    env_options: dict[str, int | float | bool | str] = Field(
        default={}, description="Environment options that differ from training: name value …"
    )
    json_path: Path | None = Field(default=None, description="File for the figures as JSON.")
    record: int | None = Field(
        default=None,
        ge=1,
        description="Also record so many episodes: what agents saw, did, earned.",
    )
    record_path: Path | None = Field(
        default=None, description="File for recorded episodes. None: episodes.npz in the run."
    )
    record_sampled: bool = Field(
        default=False, description="Record sampled actions instead of greedy ones."
    )
    minari: str | None = Field(
        default=None,
        description="Also write recorded episodes as a Minari data set of this name, such as "
        "jmarl/spread/mappo-v0.",
    )


def evaluate(policy: "TrainedPolicy", options: Options) -> dict[str, dict[str, float]]:
    """Figures of greedy and of sampled play."""
    from jmarl.evaluation.score import score

    return score(policy, **options.model_dump(include={"world", "episodes", "seed", "env_options"}))


def main() -> None:
    with command() as (console, _):
        given = renamed(sys.argv[1:], {"--json": "--json-path"})
        run, options = read_run_command(Options, "python -m jmarl.evaluate RUN", given)
        if options.json_path is not None:
            check_output("json_path", options.json_path)
        _check_recording(run, options)
        with working(console, f"playing {options.episodes} episodes, greedy and sampled …"):
            from jmarl.evaluation.trained_policy import load_policy  # only now: it needs jax

            policy = load_policy(run, options.which)
            if options.minari is not None:
                from jmarl.evaluation.minari_data import check_one_reward

                check_one_reward(options.minari, policy.spec)
            figures = evaluate(policy, options)
        _show(console, figures, options)
        if options.json_path is not None:
            _write(options.json_path, figures, policy.config.algorithm)
            console.print(f"figures: {options.json_path}", markup=False, soft_wrap=True)
        if options.record is not None:
            _record(console, run, policy, options.record, options)


def _check_recording(run: Path, options: Options) -> None:
    """Refuse what cannot be recorded before anything is played."""
    if options.record is None:
        for name in ("record_path", "record_sampled", "minari"):
            if value := getattr(options, name):
                raise ConfigError(f"{name}={str(value)!r} needs record=N, a number of episodes.")
        return
    if options.world != "native":
        raise ConfigError(f"record={options.record} needs world='native', not {options.world!r}.")
    check_output("record_path", _npz(run, options))
    if options.minari is not None:
        from jmarl.evaluation.minari_data import check_minari

        check_minari(options.minari)


def _npz(run: Path, options: Options) -> Path:
    return options.record_path or run / EPISODES


def _record(
    console: Console, run: Path, policy: "TrainedPolicy", count: int, options: Options
) -> None:
    from jmarl.evaluation.recording import record
    from jmarl.evaluation.score import elsewhere

    policy = elsewhere(policy, options.env_options)
    path, greedy = _npz(run, options), not options.record_sampled
    with working(console, f"recording {count} episodes …"):
        record(policy, count, path, options.minari, options.seed, greedy)
    for place in (path, options.minari):
        if place is not None:
            console.print(f"{count} episodes: {place}", markup=False, soft_wrap=True)


def _show(console: Console, figures: dict[str, dict[str, float]], options: Options) -> None:
    table = Table(title=f"{options.episodes} episodes in {options.world} worlds")
    table.add_column("")
    for case in figures:
        table.add_column(case, justify="right")
    for name in next(iter(figures.values())):
        table.add_row(name, *(f"{own[name]:.2f}" for own in figures.values()))
    console.print(table)


def _write(path: Path, figures: dict[str, dict[str, float]], algorithm: str) -> None:
    from jmarl.runs.directory import versions
    from jmarl.runs.files import write_json

    rows = [
        {"case": case, "subject": algorithm, "metric": metric, "value": value}
        for case, own in figures.items()
        for metric, value in own.items()
    ]
    made, typed = versions(), command_line(*sys.argv)
    meta = {"commit": made["commit"], "command": typed, "versions": made["packages"]}
    try:
        write_json(path, {"rows": rows, "meta": meta})
    except OSError as error:
        raise RunError(f"json_path={str(path)!r} cannot be written: {error}.") from None
