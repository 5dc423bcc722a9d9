"""Splits a CPU into one device per core.

If a CPU is one device, its cores divide every single operation among them and wait for each other.
If it is several devices, each steps and learns from its own worlds, in its own caches, and they
synchronise once per minibatch. With enough work per device this is 1.2 to 2.1 times as fast (two
cores; MAT and MAPPO with 8 and 16 worlds, 25 steps, one minibatch). Results do not depend on the
number of devices, up to round-off.
"""

import math
import os
from collections.abc import Iterable
from pathlib import Path

import jax

from jmarl.config.train_config import Config
from jmarl.envs.base import steps_on_host
from jmarl.errors import ConfigError
from jmarl.execution import compiler
from jmarl.execution.host_worlds import check_on_host
from jmarl.machine import CGROUPS, LISTING, control_groups, read_or_empty

ENOUGH = 100  # joint observations in a device's shard of a minibatch
FORCED = "xla_force_host_platform_device_count"

# XLA aborts a process in which a device waits 40 s for the others. Raise the limit, so that it does
# not mistake a sleeping machine or a throttled container for a deadlock. In seconds.
PATIENCE: dict[str, compiler.Option] = {
    "xla_cpu_collective_call_warn_stuck_timeout_seconds": "300",
    "xla_cpu_collective_call_terminate_timeout_seconds": "900",
}


def make_devices(runs: Iterable[tuple[Config, int]]) -> None:
    """Make jax split the CPU into as many devices as the given (config, number of members) should
    use. Does nothing if the user has chosen a number or jax has already created its devices, and
    for several processes, which must connect before they create devices. Leaves jax's configuration
    and the environment unchanged. What worlds on the host cannot do is refused first."""
    runs = list(runs)
    for config, members in runs:
        if steps_on_host(config.env):
            check_on_host(config, members)
    count = max(worthwhile(*run) for run in runs)
    single_cpu = compiler.only_cpu() and not any(config.hosts.several for config, _ in runs)
    if single_cpu:
        _create_devices(count)


def split_cpu(count: int | None) -> None:
    """Make jax split the CPU into `count` devices, or (None) one per core, for members that the
    caller vmaps. Does nothing where `make_devices` does nothing."""
    if compiler.only_cpu():
        _create_devices(count or cores())


def _create_devices(count: int) -> None:
    if count == 1 and not counted_by_user():
        return
    flags = PATIENCE if counted_by_user() else PATIENCE | {FORCED: str(count)}
    with compiler.flags_set(flags):
        jax.devices()


def counted_by_user() -> bool:
    """Whether the user has set the number of CPU devices."""
    configured = getattr(jax.config, "jax_num_cpu_devices", -1)
    return configured != -1 or compiler.set_by_user(FORCED)


def worthwhile(config: Config, members: int = 1) -> int:
    """How many CPU devices a run should use: `config.devices` if given, else the most that divide
    its worlds evenly and have enough work.

    Members train in threads, one per core; if these occupy as many cores, one device is better.
    With `shuffle: rows` every device would learn from all rows, so more devices gain nothing.
    Several processes have their own devices. Worlds on the host have one caller.
    """
    if config.hosts.several or steps_on_host(config.env):
        return 1
    if config.devices is not None:
        return _asked_for(config.devices, config.num_envs * members)
    if config.ppo.shuffle == "rows":
        return 1
    limit = min(cores(), config.steps_per_update // (ENOUGH * config.ppo.num_minibatches))
    best = next((n for n in range(limit, 1, -1) if config.divides(n)), 1)
    return best if members == 1 or best > min(members, cores()) else 1


def _asked_for(devices: int, worlds: int) -> int:
    """Refused before XLA creates them, which takes seconds for every thousand."""
    if devices > worlds:
        raise ConfigError(
            f"devices={devices} is more than the run's {worlds} environments, which they share."
        )
    return devices


def cores() -> int:
    """The number of cores that this process may use, by affinity and by a container's quota."""
    by_affinity = hasattr(os, "sched_getaffinity")
    available = len(os.sched_getaffinity(0)) if by_affinity else os.cpu_count() or 1
    return max(1, math.floor(min(available, quota())))


def quota(listing: Path = LISTING, root: Path = CGROUPS) -> float:
    """The CPU quota of this process in cores: the least of its control group and all groups that
    contain it; infinite if none sets a quota."""
    return min(map(_granted, control_groups("cpu", listing, root)), default=math.inf)


def _granted(group: Path) -> float:
    """The quota of one group in cores, by cgroup v2 or v1."""
    words = read_or_empty(group / "cpu.max").split()
    words = words or [read_or_empty(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    try:
        limit, period = map(int, words)
    except ValueError:  # absent, or "max"
        return math.inf
    return limit / period if limit > 0 else math.inf
