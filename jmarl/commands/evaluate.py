"""python -m jmarl.evaluate RUN [--option value …]: score a trained policy."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.table import Table

from jmarl.commands.arguments import command, read_run_command, renamed
from jmarl.config.formatting import command_line
from jmarl.errors import ConfigError, RunError
from jmarl.runs.terminal import working


class Options(BaseModel):
    """Score the policy of a run, in the world it was trained in or another."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    which: Literal["best", "latest"] = Field(default="best", description="which checkpoint")
    world: Literal["native", "mpe2"] = Field(
        default="native", description="jmarl's own worlds, or Farama's mpe2 step by step"
    )
    episodes: int = Field(default=1024, ge=1, description="how many are played, greedy and sampled")
    seed: int = Field(default=1, ge=0, description="of initial states and samples")
    env_options: dict[str, int | float | bool | str] = Field(
        default={}, description="options of the world that differ from training, name value …"
    )
    json_path: Path | None = Field(default=None, description="where the figures go as JSON")


def score(run: Path, options: Options) -> tuple[dict[str, dict[str, float]], Any]:
    """Figures of greedy and sampled play; also the policy."""
    from jmarl.evaluation.trained_policy import load_policy
    from jmarl.learning.episodes import described

    policy = load_policy(run, options.which)
    if options.env_options:
        policy = _elsewhere(policy, options.env_options)
    play = _mpe2_player(policy, options) if options.world == "mpe2" else _player(policy, options)
    figures = {}
    for case, greedy in (("greedy", True), ("sampled", False)):
        told = described(policy.spec, play(jax.random.key(options.seed), greedy), case)
        figures[case] = {name.removeprefix(f"{case}/"): value for name, value in told.items()}
    return figures, policy


def _player(policy: Any, options: Options) -> Callable[[jax.Array, bool], Any]:
    """Native worlds; one program plays greedy and sampled."""
    from jmarl.learning.episodes import play_episodes

    @jax.jit
    def play(params: Any, norms: Any, key: jax.Array, greedy: jax.Array) -> Any:
        episodes = options.episodes
        return play_episodes(policy.env, policy.groups, params, key, episodes, greedy, norms)

    return lambda key, greedy: play(policy.params, policy.norms, key, jnp.asarray(greedy))


def _mpe2_player(policy: Any, options: Options) -> Callable[[jax.Array, bool], Any]:
    from jmarl.evaluation.mpe2 import play_in_mpe2

    return lambda key, greedy: play_in_mpe2(policy, key, options.episodes, greedy, options.seed)


def _elsewhere(policy: Any, env_options: dict[str, Any]) -> Any:
    """The same parameters in a world of other options, if they fit."""
    from jmarl.algorithms.build import make_trainer
    from jmarl.evaluation.trained_policy import TrainedPolicy

    config = policy.config.model_copy(
        update={"env_options": {**policy.config.env_options, **env_options}}
    )
    trainer, _ = make_trainer(config)
    ours, theirs = (
        jax.tree.map(lambda x: x.shape, params) for params in (policy.params, trainer.shapes.params)
    )
    if ours != theirs:
        raise ConfigError(
            f"env_options={env_options!r} changes what agents see or do, so this policy does not "
            "fit that world."
        )
    return TrainedPolicy(config, trainer.env, trainer.groups, policy.params, policy.norms)


def main() -> None:
    with command() as (console, _):
        given = renamed(sys.argv[1:], {"--json": "--json-path"})
        run, options = read_run_command(Options, "python -m jmarl.evaluate RUN", given)
        with working(console, f"playing {options.episodes} episodes, greedy and sampled …"):
            figures, policy = score(run, options)
        _show(console, figures, options)
        if options.json_path is not None:
            _write(options.json_path, figures, policy.config.algorithm)
            console.print(f"figures: {options.json_path}", markup=False, soft_wrap=True)


def _show(console: Console, figures: dict[str, dict[str, float]], options: Options) -> None:
    table = Table(title=f"{options.episodes} episodes in {options.world} worlds")
    table.add_column("")
    for case in figures:
        table.add_column(case, justify="right")
    for name in next(iter(figures.values())):
        table.add_row(name, *(f"{told[name]:.2f}" for told in figures.values()))
    console.print(table)


def _write(path: Path, figures: dict[str, dict[str, float]], algorithm: str) -> None:
    from jmarl.runs.directory import replace_text, versions

    rows = [
        {"case": case, "subject": algorithm, "metric": metric, "value": value}
        for case, told in figures.items()
        for metric, value in told.items()
    ]
    made, typed = versions(), command_line(*sys.argv)
    meta = {"commit": made["commit"], "command": typed, "versions": made["packages"]}
    try:
        replace_text(path, json.dumps({"rows": rows, "meta": meta}, indent=1))
    except OSError as error:
        raise RunError(f"json_path={str(path)!r} cannot be written: {error}.") from None
