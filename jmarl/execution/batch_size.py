"""How many members train side by side in one program: as many as is fast, and as fit."""

import math
import os
from pathlib import Path

import jax

from jmarl.execution.cpu_devices import cores

# On a CPU batches train a few at once, which fills its cores better than members side by side do.
# Only where members have few worlds it pays to have some of them share each operation
# (`python -m benchmarks.population`).
CPU_WORLDS = 16
CORE_ROWS, CPU_ROWS = 768, 12288
PART_OF_FREE = 0.8  # of the memory that is free may be used


def side_by_side(members: int, num_envs: int) -> int:
    """All on an accelerator. On a CPU few, in batches of equal size, and one for every core."""
    if jax.default_backend() != "cpu":
        return members
    return largest_divisor(members, max(1, min(CPU_WORLDS // num_envs, members // cores())))


def rows_at_once(devices: int) -> int | None:
    """Agents' views that are learned from at a time. Devices that are a CPU's cores look at what
    their inner caches hold; a CPU as one device at more, for its cores share every operation and
    have to meet after each. On an accelerator all at once."""
    if jax.default_backend() != "cpu":
        return None
    return CORE_ROWS if devices > 1 else CPU_ROWS


def largest_divisor(number: int, limit: int) -> int:
    return next(size for size in range(min(number, limit), 0, -1) if number % size == 0)


def fitting(members: int, per_batch: int, batch_bytes: int, limit: int) -> int:
    """Members per batch when `per_batch` of them need `batch_bytes`: as many as fit."""
    if batch_bytes <= limit:
        return per_batch
    return largest_divisor(members, max(1, math.floor(per_batch * limit / batch_bytes)))


def free_bytes() -> int:
    """Of the device's memory, the part that a batch may take."""
    told = jax.local_devices()[0].memory_stats()
    if told and "bytes_limit" in told:
        return int((told["bytes_limit"] - told.get("bytes_in_use", 0)) * PART_OF_FREE)
    return int(min(_machine_bytes(), _container_bytes()) * PART_OF_FREE)


def _machine_bytes() -> float:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        told = next(line for line in lines if line.startswith("MemAvailable"))
        return int(told.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        return pages * size / 2


def _container_bytes() -> float:
    """What a control group leaves; infinite where there is none."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text(encoding="utf-8").strip()
        return int(limit) - int((group / "memory.current").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return math.inf
