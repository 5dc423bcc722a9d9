"""Writes a summary of a finished run as one JSON file."""

from pathlib import Path
from typing import Any

from jmarl.config.train_config import Config
from jmarl.runs.files import EVALUATIONS, SUMMARY, read_lines, write_json
from jmarl.runs.loop import LoopResult


def write_summary(
    path: Path, config: Config, outcome: LoopResult, further: dict[str, Any] | None = None
) -> None:
    """From the evaluations in `path`, whichever process wrote them."""
    lines = read_lines(path / EVALUATIONS)
    summary = {
        "algorithm": config.algorithm,
        "env": config.env,
        "seed": config.seed,
        "finished": outcome.stopped_by is None,
        "updates": outcome.update,
        "steps": outcome.update * config.steps_per_update,
        "seconds": outcome.seconds,
        "evaluation": next((e for e in reversed(lines) if "absolute" not in e), None),
        "absolute": next((e for e in reversed(lines) if "absolute" in e), None),
    }
    write_json(path / SUMMARY, summary | (further or {}))
