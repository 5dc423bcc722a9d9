"""The parameters of a run, read from its checkpoints without anything that trains."""

import re
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.config.stored import read_stored
from jmarl.config.train_config import Config, build
from jmarl.errors import ConfigError
from jmarl.execution.members import Policies, Snapshot
from jmarl.learning.ppo_loss import HyperParams
from jmarl.learning.trainer import Trainer
from jmarl.learning.vmapped import VmappedTrainer
from jmarl.literals import Which
from jmarl.runs.checkpoint import Checkpoints, Saved
from jmarl.runs.directory import check_plugins, check_readable
from jmarl.runs.files import (
    CHECKPOINTS,
    CONFIG,
    MEMBER,
    Membership,
    is_run,
    read_membership,
    seed_name,
)
from jmarl.runs.formats import check_directory
from jmarl.types import TrainState


class SavedArrays(NamedTuple):
    """What a run has learned, whatever its world and its networks are."""

    arrays: dict[str, np.ndarray]  # by name, as in the state of a run that trained alone
    update: int
    digest: str  # of the whole checkpoint


def saved_config(path: Path) -> Config:
    """The configuration of a run that has parameters of its own; groups of runs are refused."""
    if not is_run(path):
        if members := sorted(found.parent for found in path.glob(f"*/{MEMBER}")):
            raise ConfigError(
                f"{str(path)!r} contains {len(members)} runs; choose one of them, such as "
                f"{str(members[0])!r}."
            )
        raise ConfigError(f"{str(path)!r} is not a run: it has no {CONFIG}.")
    check_readable(path)
    check_directory(path)
    config = build(read_stored(path / CONFIG))
    check_plugins(path)
    if config.seeds > 1:
        raise ConfigError(
            f"{str(path)!r} has {config.seeds} seeds; choose one of them, such as "
            f"{str(path / seed_name(config.seed))!r}."
        )
    return config


def saved_arrays(path: Path, which: Which) -> SavedArrays:
    """Parameters and statistics; of a member's best parameters nothing else is stored."""
    if not (path / MEMBER).is_file():
        saved = _read(path, path, which)
        return SavedArrays(saved.state, saved.update, saved.about["digest"])
    group, member = _membership(path)
    saved = _read(path, group, "latest")
    _check_member(path, member, saved)
    active, about = saved.about["alive"], saved.about
    if which == "latest" and member in active:
        prefix, place, instead, update = r"^states\.", active.index(member), "", saved.update
    else:
        update = about["best_update"][member]
        prefix, place, instead = r"^best\.", member, "policies."
    arrays = {
        re.sub(prefix, instead, name): array[place]
        for name, array in saved.state.items()
        if re.match(prefix + r"(policies|learners|\d+)\.", name)
    }
    return SavedArrays(arrays, update, about["digest"])


def _read(run: Path, place: Path, which: Which) -> Saved:
    """A checkpoint as named arrays."""
    checkpoints = _opened(run, place)
    try:
        return checkpoints.best(None) if which == "best" else checkpoints.latest(None)
    finally:
        checkpoints.close()


def saved_parameters(path: Path, trainer: Trainer, hyper: HyperParams, which: str) -> Policies:
    """Best or latest, of the run or the member of a group whose directory `path` is. `hyper` is of
    the run's structure; its numbers do not matter."""
    if (path / MEMBER).is_file():
        return _of_member(path, trainer, hyper, which)
    checkpoints, like = _opened(path, path), trainer.shapes
    try:
        saved = checkpoints.best(like) if which == "best" else checkpoints.latest(like)
    finally:
        checkpoints.close()
    return saved.state.policies


def _of_member(path: Path, trainer: Trainer, hyper: HyperParams, which: str) -> Policies:
    """From its group's latest checkpoint. Members that were dropped have only their best."""
    group, member = _membership(path)
    vmapped, checkpoints = VmappedTrainer(trainer), _opened(path, group)
    try:
        saved = checkpoints.latest(partial(snapshot_shapes, vmapped, hyper))
    finally:
        checkpoints.close()
    _check_member(path, member, saved)
    active = saved.about["alive"]
    if which == "latest" and member in active:
        state = vmapped.take(saved.state.states, active.index(member))
        return state.policies
    return jax.tree.map(lambda x: x[member], saved.state.best)


def _membership(path: Path) -> Membership:
    if (membership := read_membership(path)) is None:
        raise ConfigError(f"{str(path / MEMBER)!r} does not say which group has its checkpoints.")
    return membership


def _check_member(path: Path, member: int, saved: Saved) -> None:
    if member >= len(saved.about["best_score"]):
        raise ConfigError(f"{str(path / MEMBER)!r} names member {member}, which its group has not.")


def _opened(run: Path, place: Path) -> Checkpoints:
    if not (place / CHECKPOINTS).is_dir():
        raise ConfigError(f"{str(run)!r} has no checkpoints yet.")
    return Checkpoints(place / CHECKPOINTS, read_only=True)


def snapshot_shapes(vmapped: VmappedTrainer, hyper: HyperParams, about: dict[str, Any]) -> Snapshot:
    """Shapes of a group's checkpoint, from what was saved along with it."""

    def states(members: int) -> TrainState:
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), members))
        return jax.eval_shape(vmapped.init, keys)

    count = len(about["best_score"])
    everybody = states(count)
    number = jax.eval_shape(lambda: jnp.zeros(count))
    return Snapshot(
        states=states(len(about["alive"])),
        best=everybody.policies,
        hyper=jax.tree.map(lambda _: number, hyper),
    )
