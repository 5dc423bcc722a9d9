"""Where figures go: lines of JSON, TensorBoard, Weights & Biases, and marl-eval's layout."""

import json
import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from jmarl.config.train_config import Config
from jmarl.errors import ConfigError
from jmarl.runs.directory import keep_lines_until, replace_text
from jmarl.runs.files import EVALUATIONS, MARL_EVAL, METRICS, TENSORBOARD


class Log:
    """A run's figures. Lines are flushed as they come."""

    def __init__(self, run_dir: Path, config: Config, update: int) -> None:
        """Lines of later updates than `update` are dropped: they are about to come again."""
        self._wandb = _wandb(run_dir, config) if config.wandb else None
        for name in (METRICS, EVALUATIONS):
            keep_lines_until(run_dir / name, update)
        self._files = {
            name: (run_dir / name).open("a", encoding="utf-8") for name in (METRICS, EVALUATIONS)
        }
        self._run_dir, self._curves = run_dir, config.tensorboard

    def metrics(self, entry: dict[str, Any]) -> None:
        self._write(METRICS, entry)

    def evaluation(self, entry: dict[str, Any]) -> None:
        self._write(EVALUATIONS, entry)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        if "_board" in vars(self):
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()

    @cached_property
    def _board(self) -> Any:
        """Opened with the first figures, which come when training is under way: importing it takes
        a second."""
        from tensorboardX import SummaryWriter

        return SummaryWriter(str(self._run_dir / TENSORBOARD))

    def _write(self, name: str, entry: dict[str, Any]) -> None:
        file = self._files[name]
        file.write(as_json(entry) + "\n")
        file.flush()
        curves = {key: value for key, value in entry.items() if "/" in key}
        if self._curves:
            for key, value in curves.items():
                self._board.add_scalar(key, value, entry["steps"])
        if self._wandb is not None:
            self._wandb.log(curves, step=entry["steps"])


def as_json(entry: dict[str, Any]) -> str:
    """One line; JSON has no NaN and no infinity, they become null."""
    strange = {k for k, v in entry.items() if isinstance(v, float) and not math.isfinite(v)}
    return json.dumps({k: None if k in strange else v for k, v in entry.items()})


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines only: the last may be torn."""
    found = []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def write_marl_eval(path: Path, config: Config, runs: Mapping[int, Path]) -> None:
    """Evaluations in the layout that marl-eval reads; `runs`: where those of each seed are.
    Gorsane et al. 2022."""
    family, _, task = config.env.partition("/")
    seeds = {f"seed_{seed}": _marl_eval_steps(run) for seed, run in runs.items()}
    tree = {family: {task: {config.algorithm: seeds}}}
    replace_text(path / MARL_EVAL, json.dumps(tree, indent=1))


def _marl_eval_steps(run: Path) -> dict[str, Any]:
    steps: dict[str, Any] = {}
    for line in read_lines(run / EVALUATIONS):
        absolute = line.get("absolute", False)
        prefix = "absolute" if absolute else "eval"
        figures = {"mean_episode_return": [line[f"{prefix}/return_mean"]]}
        if f"{prefix}/win_rate" in line:
            figures["win_rate"] = [line[f"{prefix}/win_rate"]]
        if absolute:
            steps["absolute_metrics"] = figures
        else:
            about = {"step_count": line["steps"], "elapsed_time": line["seconds"]}
            steps[f"step_{len(steps)}"] = about | figures
    return steps


def _wandb(run_dir: Path, config: Config) -> Any:
    try:
        import wandb  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError(
            "wandb=True needs the 'wandb' extra, which is not installed: "
            'pip install "jmarl[wandb]".'
        ) from None
    return wandb.init(
        project="jmarl", dir=run_dir, name=run_dir.name, config=config.model_dump(mode="json")
    )
