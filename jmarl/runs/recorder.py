"""What training leaves on disk, and where it resumes: one recorder for a run and for members that
train together."""

import contextlib
import hashlib
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jmarl.config.stored import read_stored
from jmarl.config.train_config import Config, build, to_yaml
from jmarl.errors import ConfigError, RunError
from jmarl.execution.members import Snapshot
from jmarl.execution.population import Population
from jmarl.runs import directory as run_dir
from jmarl.runs import formats
from jmarl.runs.cadence import next_checkpoint
from jmarl.runs.files import (
    CHECKPOINTS,
    CONFIG,
    EVALUATIONS,
    MARL_EVAL,
    METRICS,
    SUMMARY,
    dropped_lines,
    read_json,
    read_lines,
    replace_text,
    truncate_after,
    write_membership,
    written_checkpoints,
)
from jmarl.runs.logs import Log
from jmarl.runs.loop import Entry, Logger, ResumePoint, has_ended
from jmarl.runs.restore import resume_members, resume_run

if TYPE_CHECKING:
    from jmarl.runs.checkpoint import Checkpoints


LAST_FILES = (MARL_EVAL, SUMMARY)  # of a run, and of every member


class Recorder(Logger, Protocol):
    """A logger that training can resume from."""

    def last_written(self) -> int | None: ...
    def restore(self, population: Population) -> ResumePoint: ...
    def open(self, start: ResumePoint) -> None: ...
    def close(self) -> None: ...


class NullRecorder:
    """Keeps nothing: for training in memory, and for all but the main process."""

    def restore(self, population: Population) -> ResumePoint:
        del population
        return ResumePoint()

    def open(self, start: ResumePoint) -> None:
        del start

    def metrics(self, entries: list[Entry], overall: Entry) -> None:
        del entries, overall

    def evaluation(self, entries: list[Entry], overall: Entry) -> None:
        del entries, overall

    def save(self, update: int, snapshot: Snapshot, score: float, about: dict[str, Any]) -> None:
        del update, snapshot, score, about

    def last_saved(self) -> int | None:
        return None

    def last_written(self) -> int | None:
        return None

    def wait(self) -> None:
        pass

    def close(self) -> None:
        pass


class MemberDirectory(NamedTuple):
    """Where one member's lines go."""

    path: Path
    config: Config  # as if it trained alone

    def create(self, group: Path, member: int) -> None:
        self.path.mkdir(exist_ok=True)
        replace_text(self.path / CONFIG, to_yaml(self.config))
        write_membership(self.path, group, member)


class RunRecorder:
    """Lines and checkpoints of one directory. Members of a group also have lines of their own, each
    in its own directory; their checkpoints are in the group's."""

    def __init__(self, path: Path, config: Config, members: Sequence[MemberDirectory] = ()) -> None:
        """`members`: of a group; none for a run that trains alone."""
        self.path, self.config, self.members = path, config, members
        self.logs: list[Log] = []  # the directory's own, then the members'
        self._failed = False  # to write a file, and that was told

    @cached_property
    def checkpoints(self) -> "Checkpoints":
        """Orbax takes a second to import, and a new run needs it only when it has trained."""
        from jmarl.runs.checkpoint import Checkpoints

        return Checkpoints(self.path / CHECKPOINTS, self.config.keep_checkpoints)

    def restore(self, population: Population) -> ResumePoint:
        """The latest whole checkpoint. A run that was killed before its first one begins again; one
        that has lost its checkpoints is refused, and stays as it is."""
        formats.check_directory(self.path)
        if not (self.path / CHECKPOINTS).is_dir() or not self.checkpoints.updates():
            self._check_nothing_lost()
            self._tell_lines_left()
            return ResumePoint()
        resume = resume_members if self.members else resume_run
        try:
            start = resume(self.checkpoints, population)
        except ConfigError:
            if not self.checkpoints.updates():  # all turned out to be damaged
                self._check_nothing_lost()
            raise
        self.checkpoints.prune()
        return start._replace(complete=self._complete(start.update))

    def _check_nothing_lost(self) -> None:
        """Refuse to begin again what was trained before."""
        saved = (self.path / CHECKPOINTS).is_dir() and self.checkpoints.ever_saved()
        if saved or (self.path / SUMMARY).is_file() or self._had_a_checkpoint():
            raise ConfigError(
                f"{str(self.path)!r} was trained before, but none of its checkpoints can be read, "
                "so that it cannot resume. Its files stay as they are. Start a new run in another "
                "directory."
            )

    def _had_a_checkpoint(self) -> bool:
        """Whether lines go on after the second checkpoint: it waits until the first is whole."""
        began = self.config  # of a sweep's group, whose cadences never change
        if (self.path / CONFIG).is_file():
            began = build(read_stored(self.path / CONFIG))
        second = next_checkpoint(began, next_checkpoint(began, 0))
        return any(line["update"] > second for line in read_lines(self.path / METRICS))

    def _tell_lines_left(self) -> None:
        """Beginning again is no silent matter."""
        if read_lines(self.path / METRICS):
            kept = dropped_lines(self.path / METRICS).name
            warnings.warn(
                f"{str(self.path)!r} was stopped before its first checkpoint, and begins again. "
                f"Its lines are kept in {kept!r}.",
                stacklevel=1,
            )

    def _complete(self, update: int) -> bool:
        """Whether the run has ended there, and has its last files: the summary is written last."""
        summary = read_json(self.path / SUMMARY)
        ended = bool(summary.get("finished")) and summary.get("updates") == update
        places = [self.path, *(member.path for member in self.members)]
        return ended and all((at / file).is_file() for at in places for file in LAST_FILES)

    def open(self, start: ResumePoint) -> None:
        """What was logged after the checkpoint is dropped, and so are summaries of an earlier end:
        training writes them again."""
        run_dir.check_loggers(self.config)
        with self._writing():
            self._open(start)

    def _open(self, start: ResumePoint) -> None:
        run_dir.store_resumed_config(self.path, self.config, start.update)
        for place, member in enumerate(self.members):
            member.create(self.path, place)
        update = start.update or -1  # before the first update, all begins anew
        ended = has_ended(self.config, start)  # it is evaluated once more
        alone = {"wandb": False}  # one process, one run of wandb: that of the group
        members = ((each.path, each.config.model_copy(update=alone)) for each in self.members)
        for path, config in ((self.path, self.config), *members):
            (path / SUMMARY).unlink(missing_ok=True)
            truncate_after(path / METRICS, update)
            truncate_after(path / EVALUATIONS, update - ended)
            self.logs.append(Log(path, config, update))

    def metrics(self, entries: list[Entry], overall: Entry) -> None:
        with self._writing():
            for log, entry in self._own_lines(entries, overall):
                log.metrics(entry)

    def evaluation(self, entries: list[Entry], overall: Entry) -> None:
        with self._writing():
            for log, entry in self._own_lines(entries, overall):
                log.evaluation(entry)

    def _own_lines(self, entries: list[Entry], overall: Entry) -> list[tuple[Log, Entry]]:
        whole, *members = self.logs
        own = [(members[entry["member"]], entry) for entry in entries] if members else []
        return [*own, (whole, overall)]

    def save(self, update: int, snapshot: Snapshot, score: float, about: dict[str, Any]) -> None:
        """Of a run alone the state only: its best parameters are in the best checkpoint."""
        saved = snapshot if self.members else snapshot.states
        self.checkpoints.save(update, saved, score, about | self._identity)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """What every checkpoint says of the run that it belongs to."""
        options = hashlib.sha256(to_yaml(self.config).encode()).hexdigest()
        return {"seed": self.config.seed, "config": options}

    def last_saved(self) -> int | None:
        return max(self.checkpoints.updates(), default=None)

    def last_written(self) -> int | None:
        """Of the checkpoints that are whole on disk; may be asked by another thread."""
        return max(written_checkpoints(self.path / CHECKPOINTS), default=None)

    def wait(self) -> None:
        self.checkpoints.wait()

    def close(self) -> None:
        saving = "checkpoints" in vars(self)
        for log in self.logs:
            reported = self._failed or (saving and self.checkpoints.failed)
            with contextlib.suppress(OSError) if reported else self._writing():
                log.close()
        if saving:
            self.checkpoints.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A fault of the disk, in one sentence that says what is left."""
        try:
            yield
        except OSError as error:
            self._failed = True
            left = "It has no checkpoint yet"
            if (saved := self.last_written()) is not None:
                left = f"Its latest checkpoint is of update {saved}"
            raise RunError(f"{str(self.path)!r} cannot be written: {error}. {left}.") from None
