"""The memory that control groups leave."""

import math

import pytest

from jmarl.machine import available_memory, control_groups, readable

MB = 10**6


@pytest.mark.parametrize(
    ("files", "listing", "expected"),
    [
        ({"a/memory.max": 9 * MB, "a/memory.current": 4 * MB}, "0::/a\n", 5 * MB),
        ({"a/memory.max": 9 * MB, "a/memory.current": 4 * MB}, "0::/a/b\n", 5 * MB),
        (
            {
                **{"a/memory.max": 9 * MB, "a/memory.current": 4 * MB},
                **{"a/memory.stat": "anon 1\ninactive_file 2000000"},
            },
            "0::/a\n",
            7 * MB,
        ),
        (
            {"memory.max": 3 * MB, "memory.current": MB, "a/memory.max": "max"},
            "0::/a\n",
            2 * MB,
        ),
        (
            {
                "memory/a/memory.limit_in_bytes": 9 * MB,
                "memory/a/memory.usage_in_bytes": 8 * MB,
                "cpu/memory.max": 1,
                "cpu/memory.current": 0,
            },
            "2:memory:/a\n1:cpu:/\n",
            MB,
        ),
        ({"a/memory.max": MB, "a/memory.current": 2 * MB}, "0::/a\n", 0),
    ],
)
def test_memory_is_what_the_narrowest_group_leaves(files, listing, expected, tmp_path):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n", encoding="utf-8")
    (tmp_path / "listing").write_text(listing, encoding="utf-8")
    assert available_memory(tmp_path / "listing", tmp_path) == expected


def test_without_groups_it_is_the_machines(tmp_path):
    assert not list(control_groups("memory", tmp_path / "none", tmp_path))
    assert 10 * MB < available_memory(tmp_path / "none", tmp_path) < math.inf


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_234_000, "1.23 MB"), (4 * 10**12, "4 TB")],
)
def test_sizes_are_readable(size, text):
    assert readable(size) == text
