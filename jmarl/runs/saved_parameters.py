"""The parameters of a run, read from its checkpoints without anything that trains."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jmarl.errors import ConfigError
from jmarl.execution.members import Parameters, Snapshot
from jmarl.learning.ppo_loss import Hyper
from jmarl.learning.trainer import Trainer
from jmarl.learning.vmapped import Population
from jmarl.runs.checkpoint import Checkpoints
from jmarl.runs.files import CHECKPOINTS, MEMBER
from jmarl.types import State


def saved_parameters(path: Path, trainer: Trainer, which: str) -> Parameters:
    """Best or latest, of the run or the member of a group whose directory `path` is."""
    if (path / MEMBER).is_file():
        return _of_member(path, trainer, which)
    checkpoints, like = _opened(path, path), trainer.shapes
    try:
        saved = checkpoints.best(like) if which == "best" else checkpoints.latest(like)
    finally:
        checkpoints.close()
    return Parameters(saved.state.params, saved.state.normalisers)


def _of_member(path: Path, trainer: Trainer, which: str) -> Parameters:
    """From its group's latest checkpoint. Members that were dropped have only their best."""
    about = json.loads((path / MEMBER).read_text(encoding="utf-8"))
    population, checkpoints = Population(trainer), _opened(path, path / about["group"])
    try:
        saved = checkpoints.latest(partial(snapshot_shapes, population))
    finally:
        checkpoints.close()
    member, active = about["member"], saved.about["alive"]
    if which == "latest" and member in active:
        state = population.take(saved.state.states, active.index(member))
        return Parameters(state.params, state.normalisers)
    return jax.tree.map(lambda x: x[member], saved.state.best)


def _opened(run: Path, place: Path) -> Checkpoints:
    if not (place / CHECKPOINTS).is_dir():
        raise ConfigError(f"{str(run)!r} has no checkpoints yet.")
    return Checkpoints(place / CHECKPOINTS, read_only=True)


def snapshot_shapes(population: Population, about: dict[str, Any]) -> Snapshot:
    """Shapes of a group's checkpoint, from what was saved along with it."""

    def states(members: int) -> State:
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), members))
        return jax.eval_shape(population.init, keys)

    count = len(about["best_score"])
    everybody = states(count)
    number = jax.eval_shape(lambda: jnp.zeros(count))
    return Snapshot(
        states=states(len(about["alive"])),
        best=Parameters(everybody.params, everybody.normalisers),
        hyper=jax.tree.map(lambda _: number, Hyper()),
    )
