"""When a CPU's cores become devices, and that a run on them resumes."""

import json
import math
import os
import subprocess
import sys

import pytest

from jmarl.config import build
from jmarl.cores import cores, quota, worthwhile

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
    monkeypatch.setattr("jmarl.cores.cores", lambda: there)
    assert worthwhile(build(LARGE | changes)) == expected


@pytest.mark.parametrize(
    ("there", "members", "expected"), [(2, 2, 1), (2, 5, 1), (8, 2, 8), (8, 8, 1), (3, 2, 1)]
)
def test_members_train_in_threads_where_these_fill_as_many_cores(
    there, members, expected, monkeypatch
):
    monkeypatch.setattr("jmarl.cores.cores", lambda: there)
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


def called(module, *options):
    command = [sys.executable, "-m", module, *options]
    flags = {"XLA_FLAGS": os.environ["XLA_FLAGS"]}  # the tests' own
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | flags, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "damaged" not in done.stderr


def trained(path, *options):
    given = "--log-every 1 --eval-episodes 8 --no-compilation-cache"
    called("jmarl.train", *given.split(), *options)
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_a_run_on_its_cores_goes_on_bit_for_bit(tmp_path):
    small = "--algorithm ippo --num-envs 16 --net.hidden 8 8 --ppo.num-minibatches 1 --no-gif"
    small = [*small.split(), "--ppo.lr-schedule", "constant", "--no-tensorboard"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    expected = trained(whole, *small, "--total-updates", "4", "--run-dir", str(whole))
    trained(cut, *small, "--total-updates", "2", "--run-dir", str(cut))
    ours = trained(cut, "--resume", str(cut), "--total-updates", "4")
    names = [name for name in expected[-1] if name.startswith(("losses/", "train/"))]
    assert len(names) > 5
    assert [[line[n] for n in names] for line in ours] == [
        [line[n] for n in names] for line in expected
    ]
    # and what it saved can be read where there is one device
    called("jmarl.evaluate", str(whole), "--episodes", "8", "--json", str(tmp_path / "scores.json"))
    on_one = trained(whole, "--resume", str(whole), "--total-updates", "5", "--devices", "1")
    assert on_one[:4] == expected
    # the same streams on two devices
    on_two = trained(cut, "--resume", str(cut), "--total-updates", "5", "--devices", "2")
    assert on_two[4]["update"] == 5
    for name in names:
        assert on_one[4][name] == pytest.approx(on_two[4][name], abs=1e-5)
