"""Chooses how many members one vmapped program trains: as many as are fast and fit into memory."""

import math

import jax

from jmarl.execution.cpu_devices import cores
from jmarl.machine import available_memory

# On a CPU several batches train concurrently, which uses its cores better than vmapping members
# does. Vmapping helps only if members have few worlds (`python -m benchmarks.population`).
CPU_WORLDS = 16
CORE_ROWS, CPU_ROWS = 768, 12288
PART_OF_FREE = 0.8  # share of the free memory that a batch may use


def members_per_batch(members: int, num_envs: int) -> int:
    """All members on an accelerator. On a CPU few, in batches of equal size, at least one batch per
    core."""
    if jax.default_backend() != "cpu":
        return members
    return members_at_once(members, num_envs, members // cores())


def members_at_once(members: int, num_envs: int, most: int | None = None) -> int:
    """How many of a device's members train side by side; the others train after them."""
    if jax.default_backend() != "cpu":
        return members
    limit = min(CPU_WORLDS // num_envs, members if most is None else most)
    return largest_divisor(members, max(1, limit))


def rows_at_once(devices: int) -> int | None:
    """Rows (observations of single agents) per microbatch; None: no limit, on accelerators. If a
    CPU's cores are devices, as many as fit into a core's caches. If a CPU is one device, more,
    because its cores synchronise after every operation."""
    if jax.default_backend() != "cpu":
        return None
    return CORE_ROWS if devices > 1 else CPU_ROWS


def largest_divisor(number: int, limit: int) -> int:
    return next(size for size in range(min(number, limit), 0, -1) if number % size == 0)


def fitting(members: int, per_batch: int, batch_bytes: int, limit: int) -> int:
    """Members per batch that fit into `limit` bytes, if `per_batch` of them need `batch_bytes`."""
    if batch_bytes <= limit:
        return per_batch
    return largest_divisor(members, max(1, math.floor(per_batch * limit / batch_bytes)))


def free_bytes() -> int:
    """The memory of a device that a batch may use."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int((stats["bytes_limit"] - stats.get("bytes_in_use", 0)) * PART_OF_FREE)
    return int(available_memory() * PART_OF_FREE)
