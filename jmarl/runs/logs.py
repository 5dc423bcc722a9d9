"""Loggers of metrics: lines of JSON, TensorBoard, Weights & Biases, and marl-eval's layout."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jmarl.config.train_config import Config
from jmarl.runs.directory import check_loggers
from jmarl.runs.files import (
    EVALUATIONS,
    MARL_EVAL,
    METRICS,
    RUN_ID,
    TENSORBOARD,
    VERSIONS,
    as_json,
    read_json,
    read_lines,
    return_suffixes,
    seed_name,
    write_json,
)
from jmarl.runs.tensorboard import EventFile


class Log:
    """A run's metrics and evaluations. No file stays open between two lines: members that train
    together are often more than a process may have files."""

    def __init__(self, run_dir: Path, config: Config, update: int) -> None:
        """`update`: the run resumes after it; -1: from the beginning."""
        self._wandb = _wandb(run_dir, config) if config.wandb else None
        first_step = update * config.steps_per_update + 1 if update >= 0 else 0
        events = EventFile(run_dir / TENSORBOARD, first_step)
        self._run_dir, self._events = run_dir, events if config.tensorboard else None
        for name in (METRICS, EVALUATIONS):
            (run_dir / name).touch()

    def metrics(self, entry: dict[str, Any]) -> None:
        self._write(METRICS, entry)

    def evaluation(self, entry: dict[str, Any]) -> None:
        self._write(EVALUATIONS, entry)

    def close(self) -> None:
        if self._wandb is not None:
            self._wandb.finish()

    def _write(self, name: str, entry: dict[str, Any]) -> None:
        with (self._run_dir / name).open("a", encoding="utf-8") as file:
            file.write(as_json(entry) + "\n")
        curves = {key: value for key, value in entry.items() if "/" in key}
        if self._events is not None:
            self._events.write(curves, entry["steps"])
        if self._wandb is not None:
            self._wandb.log(curves, step=entry["steps"])


def write_marl_eval(path: Path, config: Config, runs: Mapping[int, Path]) -> None:
    """Write evaluations in the layout that marl-eval reads; `runs`: the directory of each seed.
    Between opponents each team has a task of its own, `simple_tag_adversary`, so that every task
    has the same metrics and no return is of more than a team. Gorsane et al. 2022."""
    family, _, task = config.env.partition("/")
    lines = {seed_name(seed): read_lines(run / EVALUATIONS) for seed, run in runs.items()}
    last = next((own[-1] for own in lines.values() if own), {})
    tasks = {
        task + suffix.replace("/", "_"): {
            config.algorithm: {seed: _marl_eval_steps(own, suffix) for seed, own in lines.items()}
        }
        for suffix in return_suffixes(last)
    }
    write_json(path / MARL_EVAL, {family: tasks})


def _marl_eval_steps(lines: list[dict[str, Any]], suffix: str) -> dict[str, Any]:
    steps: dict[str, Any] = {}
    for line in lines:
        absolute = line.get("absolute", False)
        prefix = "absolute" if absolute else "eval"
        if f"{prefix}/return_mean{suffix}" not in line:
            continue  # a damaged line
        figures = {"mean_episode_return": [line[f"{prefix}/return_mean{suffix}"]]}
        if f"{prefix}/win_rate" in line:
            figures["win_rate"] = [line[f"{prefix}/win_rate"]]
        if absolute:
            steps["absolute_metrics"] = figures
        else:
            about = {"step_count": line["steps"], "elapsed_time": line["seconds"]}
            steps[f"step_{len(steps)}"] = about | figures
    return steps


def _wandb(run_dir: Path, config: Config) -> Any:
    check_loggers(config)
    import wandb  # pyright: ignore[reportMissingImports]

    return wandb.init(
        project="jmarl",
        dir=run_dir,
        name=run_dir.name,
        config=config.model_dump(mode="json"),
        id=read_json(run_dir / VERSIONS).get(RUN_ID),  # a resumed run goes on in its own curves
        resume="allow",
    )
