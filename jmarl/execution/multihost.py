"""Coordinates the processes of one run. Only the main process reads and writes files. With a single
process these functions do nothing."""

import contextlib
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rich.console import Console

from jmarl.config.options import HostsConfig
from jmarl.errors import ConfigError
from jmarl.execution.named_leaves import is_key, plain

SILENCE = 30  # seconds without a heartbeat after which a process counts as lost


# A context of the command that prints errors of the user as one sentence and raises SystemExit.
ExitOnError = Callable[[Console], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def distributed_session(
    hosts: HostsConfig, errors: Console, exit_on_error: ExitOnError
) -> Iterator[None]:
    """Connect to the other processes, before jax is used for anything else. Any error ends this
    process immediately, because jax would wait for the others and they for it; when it is gone,
    they end too."""
    _check(hosts)
    if not hosts.join and hosts.coordinator is None:
        yield
        return
    _meet(hosts)
    try:
        with exit_on_error(errors):
            yield
    except SystemExit as refusal:
        _leave(int(refusal.code or 0))
    except Exception as error:
        if not _lost(error):
            traceback.print_exc()
            _leave(1)
        errors.print(
            f"another process of this run was lost ({_reason(error)}). Continue from the last "
            "checkpoint with --resume, with any number of processes.",
            style="red",
            markup=False,
        )
        _leave(1)


def _lost(error: Exception) -> bool:
    """Whether the error is a broken connection; its class depends on where jax detects it."""
    return isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error)


def _check(hosts: HostsConfig) -> None:
    """Refuse incomplete settings, with which every process would train separately."""
    given = hosts.model_dump(include={"coordinator", "processes", "process_id"})
    missing = [name for name, value in given.items() if value is None]
    if missing and not hosts.join and len(missing) < len(given):
        raise ConfigError(
            f"hosts: no {' and no '.join(missing)}; give coordinator, processes and process_id "
            "together, or --hosts.join."
        )
    if not missing and hosts.process_id >= hosts.processes:  # pyright: ignore
        raise ConfigError(
            f"hosts.process_id={hosts.process_id} is not below hosts.processes={hosts.processes}: "
            "ids count from 0."
        )
    if hosts.coordinator is not None and not hosts.coordinator.rpartition(":")[2].isdecimal():
        raise ConfigError(f"hosts.coordinator={hosts.coordinator!r} is not an address:port.")


def _meet(hosts: HostsConfig) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    given = (hosts.coordinator, hosts.processes, hosts.process_id)
    try:
        jax.distributed.initialize(*given, heartbeat_timeout_seconds=SILENCE)
    except (RuntimeError, ValueError) as error:
        raise ConfigError(f"the processes did not find each other: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _leave(code: int) -> NoReturn:
    """End this process; the main process waits, because its end would stop the others before they
    have printed their reason."""
    if is_main_process():
        time.sleep(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def is_multihost() -> bool:
    return jax.process_count() > 1


def is_main_process() -> bool:
    return jax.process_index() == 0


def anywhere(signal: int | None) -> int | None:
    """The signal that any of the processes has received."""
    if not is_multihost():
        return signal
    highest = int(np.max(multihost_utils.process_allgather(np.array(signal or 0))))
    return highest or None


def broadcast_from_main(make: Callable[[], bytes]) -> bytes:
    """The bytes that `make` returns in the main process, in every process. If it raises
    ConfigError there, every process raises it."""
    if not is_multihost():
        return make()
    message, refusal = b"", None
    if is_main_process():
        try:
            message = make()
        except ConfigError as error:
            refusal = error
            message = str(error).encode("utf-8", "surrogatepass")
    about = np.array([len(message), refusal is not None], np.int64)
    size, refused = (int(x) for x in multihost_utils.broadcast_one_to_all(about))
    sent = np.zeros(size, np.uint8)
    if is_main_process():
        sent = np.frombuffer(message, np.uint8)
    received = multihost_utils.broadcast_one_to_all(sent).astype(np.uint8).tobytes()
    if refused:
        raise refusal or ConfigError(received.decode("utf-8", "surrogatepass"))
    return received


def packed(about: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """Serialise a JSON-compatible mapping and named arrays for `broadcast_from_main`."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(buffer, allow_pickle=False, **{"": text}, **arrays)
    return buffer.getvalue()


def unpacked(message: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The inverse of `packed`."""
    with np.load(io.BytesIO(message), allow_pickle=False) as stored:
        arrays = dict(stored)
    return json.loads(arrays.pop("").tobytes()), arrays


def gather_to_host(tree: Any, mesh: Mesh | None) -> Any:
    """The whole tree as arrays of this process, wherever its shards are. Every process must call
    this."""
    if not is_multihost():
        return tree
    assert mesh is not None
    everywhere = NamedSharding(mesh, PartitionSpec())
    replicated = jax.jit(lambda t: jax.tree.map(plain, t), out_shardings=everywhere)(tree)
    local = jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), replicated)
    return jax.tree.map(
        lambda x, was: jax.random.wrap_key_data(x) if is_key(was) else x, local, tree
    )


def put(tree: Any, shardings: Any) -> Any:
    """`jax.device_put` that also reaches devices of other processes. Every process passes the whole
    tree, or its shards of global arrays."""
    if not is_multihost():
        return jax.device_put(tree, shardings)
    leaves, structure = jax.tree.flatten(tree)
    targets = jax.tree.leaves(jax.tree.broadcast(shardings, tree))
    return jax.tree.unflatten(
        structure, [_put(leaf, target) for leaf, target in zip(leaves, targets, strict=True)]
    )


def _put(leaf: Any, target: NamedSharding) -> jax.Array:
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return jax.jit(lambda x: x, out_shardings=target)(leaf)
    if isinstance(leaf, jax.Array) and is_key(leaf):
        everywhere = NamedSharding(target.mesh, PartitionSpec())
        numbers = _put(np.asarray(jax.random.key_data(leaf)), everywhere)
        return jax.jit(jax.random.wrap_key_data, out_shardings=target)(numbers)
    array = np.asarray(leaf)
    array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype))
    return jax.make_array_from_callback(array.shape, target, lambda index: array[index])
