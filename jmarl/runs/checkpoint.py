"""Checkpoints: the whole state of a run, by Orbax; the latest few and the best.

Every array is stored under its path in the state, so nothing is pickled and names can be told
apart when a state does not fit. A digest of all bytes lies beside them: what was torn or altered
on disk is recognised, and the checkpoint before it is used.
"""

import contextlib
import hashlib
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from absl import logging as absl_logging
from orbax.checkpoint.checkpoint_managers import preservation_policy as keep

from jmarl.errors import ConfigError, RunError
from jmarl.execution.named_leaves import named_arrays, placed

absl_logging.set_verbosity(absl_logging.ERROR)  # Orbax tells of every save


class Saved(NamedTuple):
    """One checkpoint, read and found whole."""

    update: int
    state: Any
    about: dict[str, Any]  # what was saved along with the state


class Checkpoints:
    """Those of one run, oldest first. Saving goes on in the background."""

    def __init__(self, directory: Path, keep_latest: int = 3, read_only: bool = False) -> None:
        self.directory, self._keep_latest = directory, keep_latest
        self._read_only, self._told = read_only, False
        kept = [keep.LatestN(keep_latest), keep.BestN(get_metric_fn=lambda m: m["score"], n=1)]
        options = ocp.CheckpointManagerOptions(
            preservation_policy=keep.AnyPreservationPolicy(kept),
            step_prefix="update",
            multiprocessing_options=_alone(),
            create=False,
            read_only=read_only,
        )
        if not read_only:
            directory.mkdir(parents=True, exist_ok=True)
        self._manager = ocp.CheckpointManager(directory.absolute(), options=options)

    def save(self, update: int, state: Any, score: float, about: dict[str, Any]) -> None:
        """`score` decides which checkpoint is the best. Returns when the state may be changed."""
        arrays = named_arrays(state)
        if jax.process_count() > 1:  # Orbax would look for the other processes' parts
            arrays = {name: np.asarray(array) for name, array in arrays.items()}
        shapes = {name: list(array.shape) for name, array in arrays.items()}
        about = about | {"score": score, "digest": digest(arrays), "shapes": shapes}
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(arrays), about=ocp.args.JsonSave(about)
        )
        try:
            self._manager.save(update, args=items, metrics={"score": score}, force=True)
        except Exception as error:  # Orbax and tensorstore raise many kinds
            raise self._failed(error) from None

    def wait(self) -> None:
        """Until everything is on disk."""
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise self._failed(error) from None

    def updates(self) -> list[int]:
        return sorted(self._manager.all_steps())

    def latest(self, like: Any) -> Saved:
        """The newest that is whole; `like` has the shapes that are expected, or says them when it
        is given what was saved along. Damaged ones make room for what is saved next, under another
        name."""
        for update in reversed(self.updates()):
            try:
                return self._read(update, like)
            except DamagedError as damage:
                warnings.warn(f"{damage}; trying the one before.", stacklevel=2)
                if not self._read_only:
                    self._set_aside(update)
        raise ConfigError(f"{str(self.directory)!r} has no checkpoint that can be read.")

    def best(self, like: Any) -> Saved:
        """Of the highest score among those that are whole."""
        found = sorted(self._scores(), key=lambda pair: pair[1], reverse=True)
        for update, _ in found:
            try:
                return self._read(update, like)
            except DamagedError as damage:
                warnings.warn(f"{damage}; trying the next best.", stacklevel=2)
        raise ConfigError(f"{str(self.directory)!r} has no checkpoint that can be read.")

    def prune(self, best: int) -> None:
        """Remove what a killed run had no time to: all but the latest few and the best."""
        for update in self.updates()[: -self._keep_latest]:
            if update != best:
                self._manager.delete(update)

    def close(self) -> None:
        """What could not be written has been told before, or is told now."""
        if not self._told:
            self.wait()
        with contextlib.suppress(Exception):
            self._manager.close()

    def _set_aside(self, update: int) -> None:
        names = (f"damaged_{update}_{n}" for n in itertools.count())
        free = next(name for name in names if not (self.directory / name).exists())
        (self.directory / f"update_{update}").rename(self.directory / free)
        self._manager.reload()

    def _scores(self) -> Iterator[tuple[int, float]]:
        for update in self.updates():
            try:
                about = self._restore(update, about=ocp.args.JsonRestore())["about"]
                yield update, float(about["score"])
            except Exception:
                warnings.warn(f"checkpoint of update {update} is damaged.", stacklevel=3)

    def _read(self, update: int, like: Any) -> Saved:
        try:
            about = self._restore(update, about=ocp.args.JsonRestore())["about"]
            found = {name: tuple(shape) for name, shape in about["shapes"].items()}
        except Exception as error:
            raise DamagedError(update, error) from None
        like = like(about) if callable(like) else like
        expected = named_arrays(like)
        if apart := _differences(found, {name: tuple(x.shape) for name, x in expected.items()}):
            raise ConfigError(
                f"the checkpoint in {str(self.directory)!r} does not fit: {', '.join(apart[:3])}."
            )
        try:
            arrays = self._arrays(update, expected)
        except Exception as error:
            raise DamagedError(update, error) from None
        if digest(arrays) != about["digest"]:
            raise DamagedError(update, "its bytes are not those that were written")
        # bound to no device, so that programs may put them where they are needed
        free = {name: jnp.array(array) for name, array in arrays.items()}
        return Saved(update, placed(like, free), about)

    def _arrays(self, update: int, expected: dict[str, Any]) -> dict[str, np.ndarray]:
        """Read one by one (3 ms each). If one of several reads fails, Orbax closes its event loop
        while the others still run: they print tracebacks and leave coroutines unawaited."""
        folder = self.directory.absolute() / f"update_{update}" / "state"
        as_numpy = ocp.RestoreArgs(restore_type=np.ndarray)
        with contextlib.closing(
            ocp.PyTreeCheckpointHandler(multiprocessing_options=_alone())
        ) as handler:
            arrays = {}
            for name, x in expected.items():
                item = {name: jax.ShapeDtypeStruct(x.shape, x.dtype)}
                one = ocp.args.PyTreeRestore(item, {name: as_numpy}, partial_restore=True)
                found = handler.restore(folder, args=one)  # pyright: ignore[reportArgumentType]
                arrays[name] = found[name]
        return arrays

    def _restore(self, update: int, **items: Any) -> Any:
        return self._manager.restore(update, args=ocp.args.Composite(**items))

    def _failed(self, error: Exception) -> RunError:
        self._told = True
        reason = str(error).strip().splitlines()
        return RunError(
            f"a checkpoint could not be written to {str(self.directory)!r}: "
            f"{reason[0] if reason else type(error).__name__}. Earlier ones are intact."
        )


def _alone() -> ocp.options.MultiprocessingOptions:
    """Only this process writes and reads: no other is waited for."""
    if jax.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    me = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"process{me}"
    )


class DamagedError(Exception):
    def __init__(self, update: int, reason: object) -> None:
        first = (str(reason).strip() or type(reason).__name__).splitlines()[0]
        super().__init__(f"checkpoint of update {update} is damaged ({first[:120]})")


def digest(arrays: dict[str, Any]) -> str:
    """SHA-256 over names, types, shapes and bytes."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def _differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    told = []
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            told.append(f"{name} is {found.get(name, 'absent')}, not {expected.get(name, 'there')}")
    return told
