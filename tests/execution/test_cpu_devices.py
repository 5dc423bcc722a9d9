"""When a CPU's cores become devices."""

import math
import os

import pytest

from jmarl.config.train_config import build
from jmarl.errors import ConfigError
from jmarl.execution.cpu_devices import cores, quota, worthwhile

LARGE = {"algorithm": "mappo", "num_envs": 128, "ppo": {"num_minibatches": 1}}


@pytest.mark.parametrize(
    ("there", "changes", "expected"),
    [
        (1, {}, 1),
        (2, {}, 2),  # 128 · 25 views, 1,600 for each of two
        (3, {}, 2),  # three do not divide 128 worlds
        (6, {}, 4),
        (8, {}, 8),
        (12, {}, 8),
        (64, {}, 32),  # 100 for each of 32; 64 would have 50
        (6, {"num_envs": 18}, 3),  # 450 views are enough for four, which do not divide 18
        (2, {"num_envs": 8}, 2),  # 100 for each
        (2, {"num_envs": 6}, 1),  # 75 for each
        (2, {"num_envs": 127}, 1),  # odd
        (4, {"ppo": {}}, 4),  # eight minibatches of 400 views
        (8, {"ppo": {}}, 4),
        (2, {"ppo": {"num_minibatches": 32}}, 1),  # 50 for each
        (2, {"ppo": {"num_minibatches": 1, "shuffle": "rows"}}, 1),
        (2, {"hosts": {"join": True}}, 1),
        (2, {"devices": 1}, 1),
        (2, {"devices": 5}, 5),  # as asked; whether that can be is refused elsewhere
    ],
)
def test_cores_are_devices_where_each_has_enough_to_do(there, changes, expected, monkeypatch):
    monkeypatch.setattr("jmarl.execution.cpu_devices.cores", lambda: there)
    assert worthwhile(build(LARGE | changes)) == expected


@pytest.mark.parametrize(
    ("there", "members", "expected"), [(2, 2, 1), (2, 5, 1), (8, 2, 8), (8, 8, 1), (3, 2, 1)]
)
def test_members_train_in_threads_where_these_fill_as_many_cores(
    there, members, expected, monkeypatch
):
    monkeypatch.setattr("jmarl.execution.cpu_devices.cores", lambda: there)
    assert worthwhile(build(LARGE), members) == expected


@pytest.mark.parametrize(
    ("files", "listing", "expected"),
    [
        ({}, "0::/\n", math.inf),
        ({"cpu.max": "max 100000\n"}, "0::/\n", math.inf),
        ({"cpu.max": "250000 100000\n"}, "0::/\n", 2.5),
        ({"cpu.max": "250000 100000", "a/b/cpu.max": "50000 100000"}, "0::/a/b\n", 0.5),
        ({"cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b\n", 2),
        ({"cpu.max": "200000 100000"}, "0::/not/in/this/container\n", 2),
        (
            {"cpu,cpuacct/cpu.cfs_quota_us": "150000", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
            "4:cpu,cpuacct:/\n1:memory:/x\n",
            1.5,
        ),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "1:cpu:/\n", math.inf),
    ],
)
def test_a_containers_quota_is_read_from_its_control_groups(files, listing, expected, tmp_path):
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "listing").write_text(listing, encoding="utf-8")
    assert quota(tmp_path / "listing", tmp_path / "root") == expected


def test_a_process_without_control_groups_has_no_quota(tmp_path):
    assert quota(tmp_path / "listing", tmp_path / "root") == math.inf
    assert 1 <= cores() <= os.cpu_count()


def test_more_devices_than_worlds_are_refused_before_they_are_made():
    config = build({"devices": 10**6})
    with pytest.raises(ConfigError, match=r"devices=1000000 is more than the run's 256 env"):
        worthwhile(config, members=2)
