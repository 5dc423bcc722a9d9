"""Curves for TensorBoard, without an open file between two lines: thousands of members may write.

An event file is a sequence of records: the length of the data, its checksum, the data, its
checksum. The data are an `Event`, here one for each line.
"""

import os
import socket
import struct
import time
from pathlib import Path
from typing import Any


class EventFile:
    """One process's curves of one run. The file is made with the first line, because the import
    takes a second."""

    def __init__(self, directory: Path, first_step: int) -> None:
        """`first_step`: TensorBoard hides what an earlier process wrote from there on."""
        self._directory, self._first_step = directory, first_step
        self._path: Path | None = None

    def write(self, curves: dict[str, float], step: int) -> None:
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        values = [Summary.Value(tag=name, simple_value=value) for name, value in curves.items()]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        begun = b"" if self._path is not None else self._begun()
        assert self._path is not None
        with self._path.open("ab") as file:
            file.write(begun + record(event.SerializeToString()))

    def _begun(self) -> bytes:
        """The first records of a new file."""
        from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]

        again = self._directory.exists()
        self._directory.mkdir(exist_ok=True)
        now = time.time()
        # by name, TensorBoard reads older files first
        name = f"events.out.tfevents.{now:017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._path = self._directory / name
        events: list[Any] = [Event(wall_time=now, file_version="brain.Event:2")]
        if again:
            start = SessionLog(status=SessionLog.START)
            events.append(Event(wall_time=now, step=self._first_step, session_log=start))
        return b"".join(record(event.SerializeToString()) for event in events)


def record(data: bytes) -> bytes:
    from tensorboardX.record_writer import masked_crc32c

    length = struct.pack("<Q", len(data))
    sums = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
    return length + next(sums) + data + next(sums)
