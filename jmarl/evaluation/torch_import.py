"""Makes a run of a reference's checkpoint: at update 0, with an evaluation of what was read."""

import contextlib
from pathlib import Path
from typing import Any

import jax

from jmarl.config.train_config import Config
from jmarl.evaluation.score import native_play
from jmarl.evaluation.trained_policy import TrainedPolicy
from jmarl.execution.compilation import jitted_init
from jmarl.execution.members import Snapshot, WarmStart
from jmarl.execution.named_leaves import with_arrays
from jmarl.execution.population import Population, make_population
from jmarl.learning.episodes import episode_figures, named_teams
from jmarl.learning.trainer import Trainer
from jmarl.runs import directory
from jmarl.runs.loop import ResumePoint
from jmarl.runs.overall import score_of
from jmarl.runs.recorder import RunRecorder
from jmarl.runs.warm_start import load_warm_start
from jmarl.types import TrainState


def import_run(config: Config) -> tuple[Path, dict[str, Any]]:
    """Create a run from the checkpoint `config.init_from`. Gives its directory and the evaluation
    of its policy. When it is resumed, it trains as a run that begins with that checkpoint."""
    population = make_population(config)
    warm_start = load_warm_start(config, population.trainer)
    assert warm_start is not None
    init_key, play_key = jax.random.split(jax.random.key(config.seed))
    state = jitted_init(population.trainer, 1, None)(init_key)
    state = with_arrays(state, warm_start.arrays)
    line = _evaluated(config, population.trainer, state, play_key)
    path = directory.create(config)
    _write(config, population, state, warm_start, path, line)
    return path, line


def _evaluated(config: Config, trainer: Trainer, state: TrainState, key: jax.Array) -> dict:
    """The line of the initial parameters, as training writes it."""
    spec = trainer.env.spec
    policy = TrainedPolicy(config, trainer.env, trainer.players, state.policies)
    play = native_play(policy, config.eval_episodes)
    line: dict[str, Any] = {"update": 0, "steps": 0, "seconds": 0.0} | named_teams(spec)
    for prefix, greedy in (("eval", True), ("eval_sampled", False)):
        line |= episode_figures(spec, jax.device_get(play(key, greedy)), prefix)
    return line


def _write(
    config: Config,
    population: Population,
    state: TrainState,
    warm_start: WarmStart,
    path: Path,
    line: dict[str, Any],
) -> None:
    """What training would have written before its first update, and a checkpoint."""
    recorder = RunRecorder(path, config)
    score = score_of(population.trainer.env.spec, line, 0)
    about = {"seconds": 0.0, "failed": {}, "span": None}
    with directory.lock(path), contextlib.closing(recorder):
        recorder.open(ResumePoint())
        backend = jax.default_backend()
        directory.record_devices(path, backend, 1, 0, init_from=warm_start.about)
        recorder.evaluation([line], line)
        snapshot = Snapshot(state, state.policies, population.hyper)
        recorder.save(0, snapshot, score, about)
        recorder.wait()
