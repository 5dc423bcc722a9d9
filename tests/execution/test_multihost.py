"""Several processes that train one run together, as a user starts them."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from jmarl.commands.train import main
from jmarl.config.options import HostsConfig
from jmarl.errors import ConfigError
from jmarl.execution import multihost
from tests.support.tiny_runs import told

TINY = [
    *("--algorithm", "ippo", "--num-envs", "16", "--rollout-length", "5", "--net.hidden", "8"),
    *("--ppo.epochs", "1", "--ppo.num-minibatches", "2", "--no-tensorboard", "--quiet"),
    *("--eval-every", "2", "--eval-episodes", "4", "--log-every", "1", "--total-updates", "6"),
]
ENDLESS = ("--total-updates", "1000000")
CUT, UPDATES = 4, 6
BOUND = 3 * multihost.SILENCE  # seconds in which a process misses another
TIMEOUT = 240  # of any command here
ROUND_OFF = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def cwd(tmp_path_factory):
    return tmp_path_factory.mktemp("hosts")


@contextlib.contextmanager
def started(cwd, *commands, devices=1):
    """`jmarl.train`, once for each list of arguments; none outlives the block."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    env = os.environ | {"XLA_FLAGS": flags, "XDG_CACHE_HOME": str(cwd / "cache")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        processes = []
        for command in commands:
            line = [sys.executable, "-m", "jmarl.train", *command]
            process = subprocess.Popen(line, cwd=cwd, env=env, text=True, **pipes)
            stack.enter_context(process)
            stack.callback(process.kill)  # called before the process is waited for
            processes.append(process)
        yield processes


def together(count, *arguments):
    """The command of each of so many processes."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    shared = ["--hosts.coordinator", f"localhost:{port}", "--hosts.processes", str(count)]
    return [[*arguments, *shared, "--hosts.process-id", str(i)] for i in range(count)]


def ended(processes, timeout=TIMEOUT):
    """Exit code, output and errors of each; gloo's own lines are left out."""
    until = time.monotonic() + timeout
    done = []
    for process in processes:
        out, err = process.communicate(timeout=max(until - time.monotonic(), 0.1))
        own = [line for line in out.splitlines() if not line.startswith("[Gloo]")]
        done.append((process.returncode, "\n".join(own), err))
    return done


def well(processes):
    """What each of them printed."""
    done = ended(processes)
    assert [code for code, _, _ in done] == [0] * len(done), done
    return [out for _, out, _ in done]


def wait_for(processes, seen):
    until = time.monotonic() + TIMEOUT
    while not seen():
        codes = [process.poll() for process in processes]
        assert codes == [None] * len(codes), ended(processes)
        assert time.monotonic() < until
        time.sleep(0.05)


def checkpoints(path):
    found = (path / "checkpoints").glob("update_*")
    return sorted(int(at.name.removeprefix("update_")) for at in found if "." not in at.name)


def updates(path):
    return [line["update"] for line in told(path, "metrics.jsonl")]


def same(one, other):
    """To round-off."""
    for name in ("metrics.jsonl", "evals.jsonl"):
        for a, b in zip(told(one, name), told(other, name), strict=True):
            assert a.keys() == b.keys()
            for key in a:
                pair = (np.array(line[key], float) for line in (a, b))  # None is NaN
                np.testing.assert_allclose(*pair, **ROUND_OFF, err_msg=f"{name} {key}")


@pytest.fixture(scope="module")
def runs(cwd):
    """The same run by two processes, and by one with two devices; what each process printed."""
    with (
        started(cwd, *together(2, *TINY, "--run-dir", "pair")) as pair,
        started(cwd, [*TINY, "--no-gif", "--run-dir", "alone"], devices=2) as alone,
    ):
        return well(pair), well(alone)


def cut(cwd, name):
    """The run of two processes as it was when it had saved but not ended."""
    path = shutil.copytree(cwd / "pair", cwd / name)
    shutil.rmtree(path / "checkpoints" / f"update_{UPDATES}")
    assert checkpoints(path)[-1] == CUT
    return path


@pytest.mark.long
def test_two_processes_train_as_two_devices_of_one(cwd, runs):
    assert updates(cwd / "pair") == [*range(1, UPDATES + 1)]
    same(cwd / "pair", cwd / "alone")


@pytest.mark.long
def test_only_the_first_process_speaks(runs):
    first, second = runs[0]
    assert "run: pair" in first
    assert second == ""


@pytest.mark.long
def test_the_first_process_draws_what_all_have_learned(cwd, runs):
    assert (cwd / "pair" / "replay.gif").read_bytes().startswith(b"GIF89a")
    assert not (cwd / "alone" / "replay.gif").exists()


@pytest.fixture(scope="module")
def resumed(cwd, runs):
    """By one process to its end; by four until one of them is told to stop, and what they said."""
    by_one, by_four = cut(cwd, "by_one"), cut(cwd, "by_four")
    with (
        started(cwd, *together(4, "--resume", "by_four", *ENDLESS)) as four,
        started(cwd, ["--resume", "by_one", "--no-gif"], devices=2) as one,
    ):
        wait_for(four, lambda: checkpoints(by_four)[-1] >= UPDATES)
        four[-1].send_signal(signal.SIGTERM)
        stopped = ended(four)
        well(one)
    return by_one, by_four, stopped


@pytest.mark.long
def test_one_process_goes_on_with_the_run_of_two(cwd, resumed):
    same(resumed[0], cwd / "alone")


@pytest.mark.long
def test_four_processes_go_on_with_the_run_of_two(cwd, resumed):
    done = updates(resumed[1])
    assert done == [*range(1, done[-1] + 1)]
    before, after = (told(path, "metrics.jsonl") for path in (cwd / "pair", resumed[1]))
    assert after[:CUT] == before[:CUT]
    assert after[CUT] != before[CUT]  # the budget, and with it the learning rate, is another


@pytest.mark.long
def test_a_signal_to_one_process_stops_all(resumed):
    _, path, ((_, said, err), *others) = resumed
    assert [code for code, _, _ in resumed[2]] == [128 + signal.SIGTERM] * 4, err
    assert f"go on: python -m jmarl.train --resume {path.name}" in said
    assert [out for _, out, _ in others] == [""] * 3
    assert checkpoints(path)[-1] == updates(path)[-1]


@pytest.mark.long
def test_a_killed_process_ends_the_other_and_the_run_goes_on_without_it(cwd):
    path = cwd / "killed"
    with started(cwd, *together(2, *TINY, *ENDLESS, "--run-dir", path.name)) as processes:
        wait_for(processes, lambda: checkpoints(path))
        processes[1].kill()
        code, _, err = ended(processes[:1], BOUND)[0]
    assert code != 0
    assert "another process of this run was lost" in err or "erminat" in err
    more = checkpoints(path)[-1] + 2
    command = ["--resume", path.name, "--total-updates", str(more)]
    with started(cwd, command, devices=2) as processes:
        well(processes)
    assert updates(path) == [*range(1, more + 1)]


@pytest.mark.long
def test_what_the_first_process_refuses_ends_all(cwd):
    (cwd / "taken").mkdir()
    (cwd / "taken" / "config.yaml").touch()
    with started(cwd, *together(2, *TINY, "--run-dir", "taken")) as processes:
        (code, out, err), (other_code, other_out, _) = ended(processes)
    assert (code, other_code) == (2, 2), err
    assert "run_dir='taken' exists" in err
    assert "Traceback" not in err
    assert out == other_out == ""


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"processes": 2}, "no coordinator and no process_id"),
        ({"process_id": 0}, "no coordinator and no processes"),
        ({"coordinator": "localhost:1"}, "no processes and no process_id"),
        (
            {"coordinator": "localhost", "processes": 2, "process_id": 0},
            "hosts.coordinator='localhost' is not an address:port",
        ),
        (
            {"coordinator": "localhost:1", "processes": 2, "process_id": 2},
            "process_id=2 is not below",
        ),
    ],
)
def test_processes_that_cannot_meet_are_refused(asked, words):
    never = contextlib.nullcontext
    given = (HostsConfig(**asked), Console(), never)
    with pytest.raises(ConfigError, match=words), multihost.distributed_session(*given):
        pass


def test_half_of_the_settings_is_refused_in_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train", *TINY, "--hosts.processes", "2"])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


NUMBERS = hnp.arrays(
    st.sampled_from([np.float32, np.int32, np.uint32, np.bool_, np.uint8]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NAMES = st.text("abc/._0123[]'", min_size=1)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(), VALUES | st.lists(VALUES)), st.dictionaries(NAMES, NUMBERS))
def test_what_is_packed_is_unpacked(about, arrays):
    about_again, again = multihost.unpacked(multihost.packed(about, arrays))
    assert about_again == about
    assert again.keys() == arrays.keys()
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)


def test_a_process_alone_asks_nobody():
    assert multihost.is_main_process()
    assert not multihost.is_multihost()
    assert multihost.anywhere(None) is None
    assert multihost.anywhere(signal.SIGTERM) == signal.SIGTERM
    assert multihost.broadcast_from_main(lambda: b"said") == b"said"
    tree = {"key": jax.random.key(0), "x": jnp.arange(3.0)}
    assert multihost.gather_to_host(tree, None) is tree
    there = multihost.put(tree, jax.sharding.SingleDeviceSharding(jax.devices()[0]))
    np.testing.assert_array_equal(there["x"], tree["x"])
    assert (there["key"] == tree["key"]).all()
