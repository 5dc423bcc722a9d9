"""Formats on disk: runs of older versions resume, those of newer ones are refused in a sentence."""

import json
import tarfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jmarl
from jmarl.errors import ConfigError
from jmarl.learning.ppo import OF_LAST_MINIBATCH
from jmarl.runs import formats
from jmarl.runs.checkpoint import Checkpoints
from jmarl.runs.files import read_json, read_lines, write_json
from tests.support.long import all_but_long
from tests.support.tiny_runs import OF_TIME, resumed

STORED = Path(__file__).parents[1] / "support" / "stored_runs"  # by `make.py` there
SUMS = tuple(
    f"{prefix}/return_{name}"
    for prefix in ("eval", "eval_sampled", "absolute")
    for name in ("mean", "std", "min", "max", "iqm", "iqm_low", "iqm_high")
)
# another statistic since then
INTERVALS = tuple(name for name in SUMS if name.endswith(("_low", "_high")))
pytestmark = pytest.mark.usefixtures("unwatched")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Runs of two updates, and how the version that began them went on to four."""
    path = tmp_path_factory.mktemp("stored")
    with tarfile.open(STORED / "format_1.tar.gz") as archive:
        archive.extractall(path, filter="data")
    return path


def later_lines(entries, changed):
    """Without clocks, and without what newer versions log otherwise. A new version may log more
    than an older one, but nothing else."""
    return [
        {k: v for k, v in entry.items() if k not in (*OF_TIME, *changed)}
        for entry in entries
        if entry["update"] > 2
    ]


def assert_same_lines(path, expected, changed):
    lines = read_lines(path / "metrics.jsonl") + read_lines(path / "evals.jsonl")
    found, wanted = later_lines(lines, changed), later_lines(expected, changed)
    assert [entry["update"] for entry in found] == [entry["update"] for entry in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.keys() >= theirs.keys()
        for key, value in theirs.items():
            numbers = isinstance(value, float)
            same = pytest.approx(value, rel=1e-4, abs=1e-5) if numbers else value
            assert ours[key] == same, key


def assert_same_arrays(params, expected):
    """Whatever the arrays are called, and in whatever order."""
    left = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    for name in expected.files:
        alike = (
            i
            for i, leaf in enumerate(left)
            if leaf.shape == expected[name].shape
            and np.allclose(leaf, expected[name], rtol=1e-4, atol=1e-6)
        )
        found = next(alike, None)
        assert found is not None, name
        del left[found]
    assert not left


@pytest.mark.parametrize(
    "name",
    all_but_long(["mat", "teams", "ppo", "seeds"], "ppo"),
)
def test_a_run_of_the_first_format_resumes_as_the_version_that_began_it(name, stored):
    """MAT; recurrent MAPPO with two teams; PPO that normalises observations and rewards; two seeds
    side by side. Everything must come back: parameters, optimiser, worlds, memory, keys."""
    run = stored / "runs" / name
    resumed(run, total_updates=4)
    for seed in sorted(run.glob("seed_*")) or [run]:
        case = name if seed == run else f"{name}-{seed.name}"
        expected = stored / "expected" / case
        # since format 3 PPO logs the last minibatch's losses, and contests have no sums over teams
        changed = {"ppo": OF_LAST_MINIBATCH, "teams": SUMS}.get(name, ()) + INTERVALS
        lines = json.loads(expected.with_suffix(".json").read_text("utf-8"))
        assert_same_lines(seed, lines, changed)
        params = [known.params for known in jmarl.load_policy(seed, which="latest").policies]
        with np.load(expected.with_suffix(".npz")) as arrays:
            assert_same_arrays(params, arrays)


def test_every_checkpoint_and_directory_says_its_format(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(3, {"x": jnp.ones(2)}, 0.0, {})
    about = checkpoints.latest({"x": jnp.ones(2)}).about
    checkpoints.close()
    assert (about["format"], about["update"]) == (formats.FORMAT, 3)
    assert about["jmarl"] == formats.stamp()["jmarl"] != "unknown"


def test_a_newer_format_is_refused_with_the_version_that_wrote_it(tmp_path, monkeypatch):
    like = {"x": jnp.ones(2)}
    with monkeypatch.context() as newer:
        newer.setattr(formats, "FORMAT", 99)
        newer.setattr(formats, "stamp", lambda: {"format": 99, "jmarl": "7.1"})
        newer.setattr("jmarl.runs.checkpoint.stamp", formats.stamp)
        checkpoints = Checkpoints(tmp_path / "checkpoints")
        checkpoints.save(3, like, 0.0, {})
        checkpoints.close()
    checkpoints = Checkpoints(tmp_path / "checkpoints", read_only=True)
    with pytest.raises(ConfigError, match=r"update_3' has format 99, written by jmarl 7\.1; this"):
        checkpoints.latest(like)
    with pytest.raises(ConfigError, match="format 99"):
        checkpoints.best(like)


def test_a_newer_directory_is_refused_before_anything_is_changed(stored, tmp_path):
    run = stored / "runs" / "ppo"
    versions = run / "versions.json"
    before = versions.read_text(encoding="utf-8")
    write_json(versions, read_json(versions) | {"format": 99, "jmarl": "7.1"})
    files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    try:
        with pytest.raises(ConfigError, match=r"ppo' has format 99, written by jmarl 7\.1"):
            resumed(run, total_updates=9)
        with pytest.raises(ConfigError, match=r"ppo' has format 99, written by jmarl 7\.1"):
            jmarl.load_policy(run)
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == files
    finally:
        versions.write_text(before, encoding="utf-8")


def test_older_arrays_are_translated_step_by_step(tmp_path, monkeypatch):
    """From today's format, where `x` is `a`, by the next, where it is `b`, to one where it is
    doubled."""
    today = formats.FORMAT
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(1, {"a": jnp.ones(2)}, 0.0, {})
    checkpoints.wait()
    translations = {
        today: lambda x: {"b": x["a"]},
        today + 1: lambda x: {"x": 2 * x["b"]},
    }
    monkeypatch.setattr(formats, "TRANSLATIONS", translations)
    monkeypatch.setattr(formats, "FORMAT", today + 2)
    assert checkpoints.latest({"x": jnp.ones(2)}).state["x"].tolist() == [2.0, 2.0]
    checkpoints.close()
