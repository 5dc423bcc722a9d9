"""When a CPU's cores become devices, and that a run on them resumes."""

import json
import os
import subprocess
import sys

import pytest

from jmarl.config import build
from jmarl.cores import pays

LARGE = {"algorithm": "mappo", "num_envs": 128, "ppo": {"num_minibatches": 1}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),  # 128 · 25 views, 1,600 for each of two cores
        ({"num_envs": 8}, True),  # 100 for each
        ({"num_envs": 6}, False),  # 75 for each
        ({"num_envs": 127}, False),  # odd
        ({"devices": 1}, False),
        ({"seeds": 2}, False),
        ({"ppo": {"num_minibatches": 32}}, False),  # 50 for each
        ({"ppo": {"num_minibatches": 1, "shuffle": "rows"}}, False),
        ({"hosts": {"join": True}}, False),
    ],
)
def test_cores_are_devices_where_each_has_enough_to_do(changes, expected):
    assert pays(build(LARGE | changes), 2) is expected


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
    assert on_one[4]["update"] == 5
