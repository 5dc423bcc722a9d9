"""Draws a GIF of the best policy at the end of a run."""

from pathlib import Path

import jax
import numpy as np
from rich.console import Console

from jmarl.config.train_config import Config
from jmarl.envs.mpe.env import Mpe
from jmarl.execution import multihost
from jmarl.execution.members import Policies
from jmarl.execution.population import Population
from jmarl.learning.trainer import Trainer
from jmarl.runs.files import REPLAY
from jmarl.runs.loop import LoopResult

FPS = 8
SEED = 1  # of the episode that is drawn


def draw_best(
    config: Config,
    population: Population,
    outcome: LoopResult,
    places: list[Path],
    console: Console,
) -> None:
    """Draw the seed with the highest score, in its directory `places[i]`; drawing all seeds would
    take too long. Every process must call this; only the main one draws. Errors are reported and
    otherwise ignored."""
    drawable = config.gif and isinstance(population.trainer.env, Mpe)
    if not drawable or outcome.stopped_by is not None or population.best is None:
        return
    member = int(np.argmax(population.best.score))
    best = multihost.gather_to_host(population.best.of(member), population.mesh)
    if not multihost.is_main_process():
        return
    try:
        _draw(config, population.trainer, best, places[member] / REPLAY)
        message = f"replay of the best policy: {places[member] / REPLAY}"
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        message = f"could not draw a replay of the best policy ({reason}); all else is saved."
    if not config.quiet:
        console.print(message, markup=False, soft_wrap=True)


def _draw(config: Config, trainer: Trainer, best: Policies, path: Path) -> None:
    from jmarl.evaluation.trained_policy import TrainedPolicy
    from jmarl.replays.gif import gif
    from jmarl.replays.replay import record

    policies = jax.tree.map(np.asarray, best)
    policy = TrainedPolicy(config, trainer.env, trainer.players, policies)
    replay = record(policy, jax.random.key(SEED), episodes=1, attention=False)
    path.write_bytes(gif(replay, [0], FPS))
