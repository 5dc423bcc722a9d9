"""Several processes, one run: what they must agree on. Only the first of them reads and writes; on
a process alone all of this is nothing."""

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

SILENCE = 30  # seconds after which a process that is not heard of counts as lost


# Prints what a person can act on and raises SystemExit; a command's own.
ExitOnError = Callable[[Console], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def joined(hosts: HostsConfig, errors: Console, exit_on_error: ExitOnError) -> Iterator[None]:
    """Meet the other processes, before jax is used for anything else, and part from them. Whatever
    goes wrong ends this process at once: jax would wait for the others, and they for it. That it is
    gone ends them too."""
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
            f"another process of this run was lost ({_reason(error)}). Go on from the last "
            "checkpoint with --resume, with as many processes as there are.",
            style="red",
            markup=False,
        )
        _leave(1)


def _lost(error: Exception) -> bool:
    """jax tells of a broken connection by more than one class, by where it is noticed."""
    return isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error)


def _check(hosts: HostsConfig) -> None:
    """Half of the settings would have every process train alone."""
    given = hosts.model_dump(include={"coordinator", "processes", "process_id"})
    missing = [name for name, value in given.items() if value is None]
    if missing and not hosts.join and len(missing) < len(given):
        raise ConfigError(
            f"hosts: no {' and no '.join(missing)}; processes find each other by coordinator, "
            "processes and process_id together, or by --hosts.join."
        )
    if not missing and hosts.process_id >= hosts.processes:  # pyright: ignore
        raise ConfigError(
            f"hosts.process_id={hosts.process_id} is not below hosts.processes={hosts.processes}: "
            "they count from 0."
        )
    if hosts.coordinator is not None and not hosts.coordinator.rpartition(":")[2].isdecimal():
        raise ConfigError(f"hosts.coordinator={hosts.coordinator!r} is no address:port.")


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
    """The first process last: that it is gone ends the others before they have said why."""
    if first():
        time.sleep(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def several() -> bool:
    return jax.process_count() > 1


def first() -> bool:
    return jax.process_index() == 0


def anywhere(signal: int | None) -> int | None:
    """The signal that any of the processes was given."""
    if not several():
        return signal
    most = int(np.max(multihost_utils.process_allgather(np.array(signal or 0))))
    return most or None


def from_first(make: Callable[[], bytes]) -> bytes:
    """What the first process makes, in all of them; what it refuses is refused by all."""
    if not several():
        return make()
    message, refusal = b"", None
    if first():
        try:
            message = make()
        except ConfigError as error:
            refusal = error
            message = str(error).encode("utf-8", "surrogatepass")
    about = np.array([len(message), refusal is not None], np.int64)
    size, refused = (int(x) for x in multihost_utils.broadcast_one_to_all(about))
    sent = np.zeros(size, np.uint8)
    if first():
        sent = np.frombuffer(message, np.uint8)
    received = multihost_utils.broadcast_one_to_all(sent).astype(np.uint8).tobytes()
    if refused:
        raise refusal or ConfigError(received.decode("utf-8", "surrogatepass"))
    return received


def packed(about: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """For `from_first`: a mapping that JSON can write, and arrays by name."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(buffer, allow_pickle=False, **{"": text}, **arrays)
    return buffer.getvalue()


def unpacked(message: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with np.load(io.BytesIO(message), allow_pickle=False) as found:
        arrays = dict(found)
    return json.loads(arrays.pop("").tobytes()), arrays


def fetched(tree: Any, mesh: Mesh | None) -> Any:
    """A tree as this process' own arrays, wherever its parts lie. All processes must ask for it."""
    if not several():
        return tree
    assert mesh is not None
    everywhere = NamedSharding(mesh, PartitionSpec())
    numbers = jax.jit(lambda t: jax.tree.map(plain, t), out_shardings=everywhere)(tree)
    own = jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), numbers)
    return jax.tree.map(lambda x, was: jax.random.wrap_key_data(x) if is_key(was) else x, own, tree)


def put(tree: Any, shardings: Any) -> Any:
    """`jax.device_put`, also onto devices of other processes: every process has the whole tree, or
    its part of what lies on all of them."""
    if not several():
        return jax.device_put(tree, shardings)
    leaves, structure = jax.tree.flatten(tree)
    aims = jax.tree.broadcast(shardings, tree)
    return jax.tree.unflatten(
        structure,
        [_put(leaf, aim) for leaf, aim in zip(leaves, jax.tree.leaves(aims), strict=True)],
    )


def _put(leaf: Any, aim: NamedSharding) -> jax.Array:
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return jax.jit(lambda x: x, out_shardings=aim)(leaf)
    if isinstance(leaf, jax.Array) and is_key(leaf):
        everywhere = NamedSharding(aim.mesh, PartitionSpec())
        numbers = _put(np.asarray(jax.random.key_data(leaf)), everywhere)
        return jax.jit(jax.random.wrap_key_data, out_shardings=aim)(numbers)
    own = np.asarray(leaf)
    own = own.astype(jax.dtypes.canonicalize_dtype(own.dtype))
    return jax.make_array_from_callback(own.shape, aim, lambda part: own[part])
