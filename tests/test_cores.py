"""When a CPU's cores become devices, and that a run on them is the run on one."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from jmarl.config import build
from jmarl.cores import pays

LARGE = {"algorithm": "mappo", "num_envs": 128, "ppo": {"num_minibatches": 1}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),  # 128 · 25 views, 1,600 for each of two cores
        ({"num_envs": 32}, False),  # 400 for each
        ({"num_envs": 127}, False),  # odd
        ({"devices": 1}, False),
        ({"seeds": 2}, False),
        ({"ppo": {"num_minibatches": 8}}, False),  # 200 for each
        ({"ppo": {"num_minibatches": 1, "shuffle": "rows"}}, False),
        ({"hosts": {"join": True}}, False),
    ],
)
def test_cores_are_devices_where_each_has_enough_to_do(changes, expected):
    assert pays(build(LARGE | changes), 2) is expected


def trained(path, *options):
    given = "--algorithm ippo --num-envs 64 --total-updates 2 --eval-episodes 8 --net.hidden 8 8"
    given += " --ppo.num-minibatches 1 --ppo.epochs 2 --no-tensorboard --no-compilation-cache"
    command = [sys.executable, "-m", "jmarl.train", *given.split(), "--run-dir", str(path)]
    flags = {"XLA_FLAGS": os.environ["XLA_FLAGS"]}  # the tests' own
    done = subprocess.run(
        [*command, "--log-every", "1", *options],
        capture_output=True,
        text=True,
        env=os.environ | flags,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_a_run_on_its_cores_learns_what_it_does_on_one_device(tmp_path):
    ours, theirs = trained(tmp_path / "cores"), trained(tmp_path / "one", "--devices", "1")
    names = [name for name in theirs[-1] if name.startswith("losses/")]
    assert len(names) > 5
    for mine, their in zip(ours, theirs, strict=True):
        for name in names:
            np.testing.assert_allclose(mine[name], their[name], rtol=1e-3, atol=1e-5, err_msg=name)
