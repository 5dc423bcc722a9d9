"""python -m jmarl.evaluate RUN [--option value …]: score a trained policy."""

import json
import sys
from pathlib import Path
from typing import Any, Literal

import jax
from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.table import Table

from jmarl.cli import read_options
from jmarl.errors import ConfigError, validated


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
    from jmarl.evaluation import described
    from jmarl.trained import load_policy

    policy = load_policy(run, options.which)
    if options.env_options:
        policy = _elsewhere(policy, options.env_options)
    figures = {}
    for case, greedy in (("greedy", True), ("sampled", False)):
        key = jax.random.key(options.seed)
        if options.world == "mpe2":
            from jmarl.mpe2_worlds import play_in_mpe2

            seen = play_in_mpe2(policy, key, options.episodes, greedy, options.seed)
        else:
            seen = _play_native(policy, key, options.episodes, greedy)
        told = described(policy.spec, seen, case)
        figures[case] = {name.removeprefix(f"{case}/"): value for name, value in told.items()}
    return figures, policy


def _play_native(policy: Any, key: jax.Array, episodes: int, greedy: bool) -> Any:
    from jmarl.evaluation import play_episodes

    return jax.jit(
        lambda params, norms, key: play_episodes(
            policy.env, policy.groups, params, key, episodes, greedy, norms
        )
    )(policy.params, policy.norms, key)


def _elsewhere(policy: Any, env_options: dict[str, Any]) -> Any:
    """The same parameters in a world of other options, if they fit."""
    from jmarl.algorithms import make_trainer
    from jmarl.trained import TrainedPolicy

    config = policy.config.model_copy(
        update={"env_options": {**policy.config.env_options, **env_options}}
    )
    trainer, _ = make_trainer(config)
    like = jax.eval_shape(trainer.init, jax.random.key(0))
    same = jax.tree.map(lambda x: x.shape, policy.params) == jax.tree.map(
        lambda x: x.shape, like.params
    )
    if not same:
        raise ConfigError(
            f"env_options={env_options!r} changes what agents see or do, so this policy does not "
            "fit that world."
        )
    return TrainedPolicy(config, trainer.env, trainer.groups, policy.params, policy.norms)


def main() -> None:
    console, errors = Console(), Console(stderr=True, soft_wrap=True)
    try:
        arguments = sys.argv[1:]
        prog = "python -m jmarl.evaluate RUN"
        if not arguments or arguments[0].startswith("-"):
            read_options(Options(), prog, arguments or ["--help"])
            raise ConfigError("which run? Write python -m jmarl.evaluate RUN.")
        given = ["--json-path" if a == "--json" else a for a in arguments[1:]]
        options = validated(Options, read_options(Options(), prog, given))
        with console.status(f"playing {options.episodes} episodes, greedy and sampled …"):
            figures, policy = score(Path(arguments[0]), options)
    except ConfigError as error:
        errors.print(str(error), style="red", markup=False)
        raise SystemExit(2) from None
    _show(console, figures, options)
    if options.json_path is not None:
        _write(options.json_path, figures, policy.config.algorithm)
        console.print(f"figures: {options.json_path}", markup=False)


def _show(console: Console, figures: dict[str, dict[str, float]], options: Options) -> None:
    table = Table(title=f"{options.episodes} episodes in {options.world} worlds")
    table.add_column("")
    for case in figures:
        table.add_column(case, justify="right")
    for name in next(iter(figures.values())):
        table.add_row(name, *(f"{told[name]:.2f}" for told in figures.values()))
    console.print(table)


def _write(path: Path, figures: dict[str, dict[str, float]], algorithm: str) -> None:
    from jmarl.run_dir import replace_text, versions

    rows = [
        {"case": case, "subject": algorithm, "metric": metric, "value": value}
        for case, told in figures.items()
        for metric, value in told.items()
    ]
    made = versions()
    meta = {"commit": made["commit"], "command": " ".join(sys.argv), "versions": made["packages"]}
    try:
        replace_text(path, json.dumps({"rows": rows, "meta": meta}, indent=1))
    except OSError as error:
        raise SystemExit(f"{path} cannot be written: {error}") from None


if __name__ == "__main__":
    main()
