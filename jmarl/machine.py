"""What the machine leaves to this process: its control groups, and memory."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
LISTING = Path("/proc/self/cgroup")
UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def control_groups(
    controller: str, listing: Path = LISTING, root: Path = CGROUPS
) -> Iterator[Path]:
    """Directories of this process's control group and of all groups that contain it, by cgroup v1
    or v2; none if there are none."""
    for line in read_or_empty(listing).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / controllers  # cgroup v2 lists no controllers and has a single tree
        group = top / path.lstrip("/")
        chain = [group, *group.parents]
        yield from chain[: chain.index(top) + 1]


def available_memory(listing: Path = LISTING, root: Path = CGROUPS) -> float:
    """Bytes that the machine and the control groups leave."""
    groups = control_groups("memory", listing, root)
    return min(_of_machine(), *map(_left_by, groups), math.inf)


def _of_machine() -> float:
    lines = read_or_empty(Path("/proc/meminfo")).splitlines()
    available = [line for line in lines if line.startswith("MemAvailable")]
    if available:
        return int(available[0].split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2


def _left_by(group: Path) -> float:
    """Infinite without a limit. Cached files give way."""
    names = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    for limit, used in names:
        try:
            left = int(read_or_empty(group / limit)) - int(read_or_empty(group / used))
        except ValueError:  # absent, or "max"
            continue
        return max(0, left + _cached(group))
    return math.inf


def _cached(group: Path) -> int:
    words = read_or_empty(group / "memory.stat").split()
    sizes = dict(zip(words[::2], words[1::2], strict=False))
    return int(sizes.get("total_inactive_file", sizes.get("inactive_file", 0)))


def read_or_empty(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def readable(size: float) -> str:
    """Bytes as one reads them: `3.2 GB`."""
    power = min(int(math.log(max(size, 1), 1000)), len(UNITS) - 1)
    return f"{size / 1000**power:.3g} {UNITS[power]}"
