"""How a run ends: with a moving picture of the best that it has learned."""

from pathlib import Path

import jax
import numpy as np
from rich.console import Console

from jmarl.config.train_config import Config
from jmarl.envs.mpe.env import Mpe
from jmarl.execution import multihost
from jmarl.execution.members import Parameters
from jmarl.execution.population import Crew
from jmarl.learning.trainer import Trainer
from jmarl.runs.files import REPLAY
from jmarl.runs.loop import Outcome

FPS = 8
SEED = 1  # of the episode that is shown


def draw_best(
    config: Config, crew: Crew, outcome: Outcome, places: list[Path], console: Console
) -> None:
    """Of several seeds the one with the highest score is drawn, in its own directory `places[i]`:
    all of them would take too long. All processes must come here; the first one draws. Whatever
    goes wrong costs the picture only."""
    drawable = config.gif and isinstance(crew.trainer.env, Mpe)
    if not drawable or outcome.stopped_by is not None or crew.best is None:
        return
    member = int(np.argmax(crew.best.score))
    best = multihost.fetched(crew.best.of(member), crew.mesh)
    if not multihost.first():
        return
    try:
        _draw(config, crew.trainer, best, places[member] / REPLAY)
        told = f"what it looks like: {places[member] / REPLAY}"
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        told = f"no picture could be drawn of the best policy ({reason}); all else is saved."
    if not config.quiet:
        console.print(told, markup=False, soft_wrap=True)


def _draw(config: Config, trainer: Trainer, best: Parameters, path: Path) -> None:
    from jmarl.evaluation.trained_policy import TrainedPolicy
    from jmarl.replays.gif import gif
    from jmarl.replays.replay import record

    params, norms = jax.tree.map(np.asarray, best)
    policy = TrainedPolicy(config, trainer.env, trainer.groups, params, norms)
    replay = record(policy, jax.random.key(SEED), episodes=1, attention=False)
    path.write_bytes(gif(replay, [0], FPS))
