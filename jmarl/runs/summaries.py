"""How a run ended, as one JSON file."""

import json
from pathlib import Path
from typing import Any

from jmarl.config.train_config import Config
from jmarl.runs.directory import replace_text
from jmarl.runs.files import SUMMARY
from jmarl.runs.loop import Outcome


def write_summary(
    path: Path, config: Config, outcome: Outcome, further: dict[str, Any] | None = None
) -> None:
    told = outcome.evaluations
    summary = {
        "algorithm": config.algorithm,
        "env": config.env,
        "seed": config.seed,
        "finished": outcome.stopped_by is None,
        "updates": outcome.update,
        "steps": outcome.update * config.steps_per_update,
        "seconds": outcome.seconds,
        "evaluation": next((e for e in reversed(told) if "absolute" not in e), None),
        "absolute": next((e for e in told if "absolute" in e), None),
    }
    replace_text(path / SUMMARY, json.dumps(summary | (further or {}), indent=1))
