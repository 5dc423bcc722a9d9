"""A CPU's cores as devices of their own.

As one device a CPU shares every single operation among its cores, which then wait for each other;
as several, each plays and learns from worlds of its own, in its own caches, and they meet once a
minibatch. That is 1.2 to 2.1 times as fast where there is enough to do for each (two cores; MAT and
MAPPO with 8 and 16 worlds, 25 steps, one minibatch). What is learned is the same on any number of
them, to round-off.
"""

import math
import os
from collections.abc import Iterable
from pathlib import Path

import jax

from jmarl.config.train_config import Config
from jmarl.execution import compiler

ENOUGH = 100  # views of all agents in a device's part of a minibatch
FORCED = "xla_force_host_platform_device_count"
CGROUPS = Path("/sys/fs/cgroup")

# XLA aborts a process in which a device waits 40 s for the others. A machine that sleeps, or a
# container that starves, must not be taken for a deadlock. Seconds.
PATIENCE: dict[str, compiler.Option] = {
    "xla_cpu_collective_call_warn_stuck_timeout_seconds": "300",
    "xla_cpu_collective_call_terminate_timeout_seconds": "900",
}


def make_devices(runs: Iterable[tuple[Config, int]]) -> None:
    """Have jax make as many devices of the CPU as runs, each with so many members, should have;
    unless the user has said how many or jax has made them already. Neither jax's configuration nor
    the environment is changed. Several processes meet before they make their devices."""
    runs = list(runs)
    count = max(worthwhile(*run) for run in runs)
    alone = compiler.only_cpu() and not any(config.hosts.several for config, _ in runs)
    if not alone or (count == 1 and not counted_by_user()):
        return
    flags = PATIENCE if counted_by_user() else PATIENCE | {FORCED: str(count)}
    with compiler.flags_set(flags):
        jax.devices()


def counted_by_user() -> bool:
    """Whether the environment says how many devices a CPU is."""
    configured = getattr(jax.config, "jax_num_cpu_devices", -1)
    return configured != -1 or compiler.set_by_user(FORCED)


def worthwhile(config: Config, members: int = 1) -> int:
    """How many devices of a CPU a run should have: as many as asked for, else the most that share
    its worlds evenly and have enough to do. Members train in threads, one for each core; where
    these fill as many cores, one device is better. Rows permuted over all worlds would be learned
    from by all cores alike; several processes have their own devices."""
    if config.hosts.several:
        return 1
    if config.devices is not None:
        return config.devices
    if config.ppo.shuffle == "rows":
        return 1
    limit = min(cores(), config.steps_per_update // (ENOUGH * config.ppo.num_minibatches))
    best = next((n for n in range(limit, 1, -1) if config.divides(n)), 1)
    return best if members == 1 or best > min(members, cores()) else 1


def cores() -> int:
    """Of this machine, those that this process may use: by affinity, and by a container's quota."""
    by_affinity = hasattr(os, "sched_getaffinity")
    there = len(os.sched_getaffinity(0)) if by_affinity else os.cpu_count() or 1
    return max(1, math.floor(min(there, quota())))


def quota(listing: Path = Path("/proc/self/cgroup"), root: Path = CGROUPS) -> float:
    """How many cores' time control groups grant this process: the least of its own group and those
    around it; infinite where none says anything."""
    granted = math.inf
    for line in _text(listing).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / controllers  # version 2 has no controllers in its line, and one tree for all
        group = top / path.lstrip("/")
        around = [group, *group.parents]
        granted = min(granted, *map(_granted, around[: around.index(top) + 1]))
    return granted


def _granted(group: Path) -> float:
    """By version 2 of control groups, or by version 1."""
    words = _text(group / "cpu.max").split()
    words = words or [_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    try:
        limit, period = map(int, words)
    except ValueError:  # absent, or "max"
        return math.inf
    return limit / period if limit > 0 else math.inf


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
