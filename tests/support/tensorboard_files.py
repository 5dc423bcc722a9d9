"""Reads TensorBoard's event files."""

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c


def events(directory):
    """Of all files, as TensorBoard orders them. A record: its length, 4 bytes, itself, 4 bytes."""
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        while data:
            size = int.from_bytes(data[:8], "little")
            own = data[12 : 12 + size]
            assert int.from_bytes(data[8:12], "little") == masked_crc32c(data[:8])
            assert int.from_bytes(data[12 + size : 16 + size], "little") == masked_crc32c(own)
            yield Event.FromString(own)
            data = data[16 + size :]
