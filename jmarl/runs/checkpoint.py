"""Checkpoints: the whole state of a run, by Orbax; the latest few and the best.

Every array is stored under its path in the state, so that nothing is pickled and a state that does
not fit is refused by name. Beside the arrays, each checkpoint says whose it is, in which format,
and the digest of its bytes: a damaged checkpoint is recognised, and the one before it is used.
"""

import contextlib
import hashlib
import itertools
import os
import re
import shutil
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from jmarl.errors import LONGEST, ConfigError, RunError
from jmarl.execution.named_leaves import named_arrays, unflatten_named
from jmarl.runs import orbax_side_effects
from jmarl.runs.files import (
    RUN_ID,
    VERSIONS,
    is_checkpoint,
    read_json,
    written_checkpoints,
)
from jmarl.runs.formats import check_format, format_of, stamp, translated

orbax_side_effects.turn_off()

DAMAGED, DELETED = "damaged", ".deleted"  # how the names of checkpoints begin that are not used


class Saved(NamedTuple):
    """A checkpoint that was read and is whole."""

    update: int
    state: Any
    about: dict[str, Any]  # what was saved beside the state


class Checkpoints:
    """The checkpoints of one run, oldest first. Saving goes on in the background."""

    def __init__(self, directory: Path, keep_latest: int = 3, read_only: bool = False) -> None:
        self.directory, self._keep_latest = directory, keep_latest
        self._read_only, self.failed = read_only, False  # failed: to save, and that was told
        self._scores: dict[int, float] = {}  # as far as they are known
        options = ocp.CheckpointManagerOptions(
            step_prefix="update",
            multiprocessing_options=_this_process_only(),
            create=False,
            read_only=read_only,
        )
        if not read_only:
            directory.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(directory)
        self._manager = ocp.CheckpointManager(directory.absolute(), options=options)

    def save(self, update: int, state: Any, score: float, about: dict[str, Any]) -> None:
        """`score` decides which checkpoint is the best. Returns when the state may be changed."""
        self.wait()
        arrays = named_arrays(state)
        if jax.process_count() > 1:  # Orbax would look for the other processes' parts
            arrays = {name: np.asarray(array) for name, array in arrays.items()}
        shapes = {name: list(array.shape) for name, array in arrays.items()}
        about = about | stamp() | {"update": update, "score": score, RUN_ID: self._run()}
        about |= {"digest": digest(arrays), "shapes": shapes}
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(arrays), about=ocp.args.JsonSave(about)
        )
        try:
            self._manager.save(update, args=items, force=True)
        except Exception as error:  # Orbax and tensorstore raise many kinds
            raise self._failed(error) from None
        self._scores[update] = score

    def wait(self) -> None:
        """Until everything is on disk."""
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise self._failed(error) from None
        if not self._read_only:
            self.prune()

    def updates(self) -> list[int]:
        return sorted(self._manager.all_steps())

    def ever_saved(self) -> bool:
        """Whether there is a checkpoint, whole or not, or was one that turned out to be damaged."""
        names = [path.name for path in self.directory.iterdir()]
        return any(name.startswith(DAMAGED) or is_checkpoint(name) for name in names)

    def latest(self, like: Any) -> Saved:
        """The newest whole checkpoint. `like` has the expected shapes, or computes them from what
        was saved beside the state; None: named arrays. Damaged ones are renamed, to make room."""
        return self._first_whole(self.updates()[::-1], like)

    def best(self, like: Any) -> Saved:
        """The whole checkpoint with the highest score; of equals, the first."""
        scores = {update: self._score(update) for update in self.updates()}
        return self._first_whole(sorted(scores, key=lambda at: scores[at], reverse=True), like)

    def prune(self) -> None:
        """Remove all but the latest few and the best, whichever process saved them."""
        updates = self.updates()
        if len(updates) <= self._keep_latest:
            return
        best = max(updates, key=self._score)
        for update in updates[: -self._keep_latest]:
            if update != best:
                self._remove(update)

    def close(self) -> None:
        """Wait for the last save, unless an earlier one has failed and said so."""
        if not self.failed:
            self.wait()
        with contextlib.suppress(Exception):
            self._manager.close()

    def _first_whole(self, updates: list[int], like: Any) -> Saved:
        for update in updates:
            try:
                return self._read(update, like)
            except DamagedError as damage:
                warnings.warn(f"{damage}; trying another.", stacklevel=3)
                if not self._read_only:
                    self._set_aside(update)
        raise ConfigError(f"{str(self.directory)!r} has no checkpoint that can be read.")

    def _set_aside(self, update: int) -> None:
        names = (f"{DAMAGED}_{update}_{n}" for n in itertools.count())
        free = next(name for name in names if not (self.directory / name).exists())
        (self.directory / f"update_{update}").rename(self.directory / free)
        self._manager.reload()

    def _remove(self, update: int) -> None:
        """Renamed first, so that a kill leaves no half of a checkpoint under its name."""
        away = self.directory / f"{DELETED}_{update}"
        (self.directory / f"update_{update}").rename(away)
        shutil.rmtree(away, ignore_errors=True)
        self._manager.reload()

    def _score(self, update: int) -> float:
        """Of a checkpoint that cannot be read, lower than any."""
        if update not in self._scores:
            try:
                self._scores[update] = float(self._about(update)["score"])
            except (DamagedError, KeyError, TypeError, ValueError):
                return -np.inf
        return self._scores[update]

    def _read(self, update: int, like: Any) -> Saved:
        about = self._about(update)
        self._check_identity(update, about)
        try:
            stored = self._arrays(update, about["shapes"])
            whole = digest(stored) == about["digest"]
        except Exception as error:
            raise DamagedError(update, error) from None
        if not whole:
            raise DamagedError(update, "its bytes are not those that were written")
        arrays = translated(stored, format_of(about))
        if like is None:
            return Saved(update, arrays, about)
        expected = named_arrays(like := like(about) if callable(like) else like)
        if apart := _differences(arrays, expected):
            raise ConfigError(
                f"the checkpoint in {str(self.directory)!r} does not fit: {', '.join(apart[:3])}."
            )
        # bound to no device, so that programs may put them where they are needed
        free = {name: jnp.array(array) for name, array in arrays.items()}
        return Saved(update, unflatten_named(like, free), about)

    def _about(self, update: int) -> dict[str, Any]:
        try:
            item = ocp.args.Composite(about=ocp.args.JsonRestore())
            return dict(self._manager.restore(update, args=item)["about"])
        except Exception as error:
            raise DamagedError(update, error) from None

    def _check_identity(self, update: int, about: dict[str, Any]) -> None:
        """Refuse what a newer jmarl wrote, what belongs to another run, and what was renamed.
        Checkpoints of before there were such marks are believed."""
        what = f"checkpoint {str(self.directory / f'update_{update}')!r}"
        check_format(about, what)
        run, here = about.get(RUN_ID), self._run()
        if run is not None and here is not None and run != here:
            raise ConfigError(
                f"{what} belongs to another run (id {run}, seed {about.get('seed')}); this run has "
                f"id {here}. Remove that checkpoint."
            )
        if about.get("update", update) != update:
            raise ConfigError(
                f"{what} was saved after update {about['update']}, not {update}. Remove that "
                "checkpoint, or give it its own name again."
            )

    def _run(self) -> str | None:
        return read_json(self.directory.parent / VERSIONS).get(RUN_ID)

    def _arrays(self, update: int, names: dict[str, Any]) -> dict[str, np.ndarray]:
        """Read one by one (3 ms each). If one of several reads fails, Orbax closes its event loop
        while the others still run: they print tracebacks and leave coroutines unawaited."""
        folder = self.directory.absolute() / f"update_{update}" / "state"
        as_numpy = ocp.RestoreArgs(restore_type=np.ndarray)
        with contextlib.closing(
            ocp.PyTreeCheckpointHandler(multiprocessing_options=_this_process_only())
        ) as handler:
            arrays = {}
            for name, shape in names.items():
                item = {name: jax.ShapeDtypeStruct(tuple(shape), jnp.float32)}  # any type will do
                one = ocp.args.PyTreeRestore(item, {name: as_numpy}, partial_restore=True)
                found = handler.restore(folder, args=one)  # pyright: ignore[reportArgumentType]
                arrays[name] = found[name]
        return arrays

    def _failed(self, error: Exception) -> RunError:
        self.failed = True
        kept = "There is no earlier one"
        if updates := written_checkpoints(self.directory):
            kept = f"The latest on disk is of update {updates[-1]}"
        return RunError(
            f"a checkpoint could not be written to {str(self.directory)!r}: "
            f"{_reason(error)}. {kept}."
        )


def _reason(error: Exception) -> str:
    """Tensorstore writes a page, and the number of the system's error at its end."""
    text = str(error).strip()
    if number := re.search(r"os_error_code='(\d+)'", text):
        return os.strerror(int(number[1]))
    return text.splitlines()[0][:LONGEST] if text else type(error).__name__


def _remove_leftovers(directory: Path) -> None:
    """What a killed process had not written or removed to its end."""
    for path in directory.iterdir():
        if path.name.startswith(DELETED) or ".orbax-checkpoint-tmp" in path.name:
            shutil.rmtree(path, ignore_errors=True)


def _this_process_only() -> ocp.options.MultiprocessingOptions:
    """This process reads and writes alone: it waits for no other."""
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


def _differences(arrays: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    found = {name: tuple(array.shape) for name, array in arrays.items()}
    wanted = {name: tuple(array.shape) for name, array in expected.items()}
    return [
        f"{name} is {found.get(name, 'absent')}, not {wanted.get(name, 'there')}"
        for name in sorted(found.keys() | wanted.keys())
        if found.get(name) != wanted.get(name)
    ]
