"""Runs on disk: what is resumed is what it would have been, whatever came between."""

import importlib.util
import shutil

import jax
import numpy as np
import pytest
import yaml

from jmarl.errors import ConfigError, RunError
from jmarl.execution.population import make_population
from jmarl.learning.finite import all_finite
from jmarl.runs import directory as run_dir
from jmarl.runs.files import read_lines
from jmarl.runs.recorder import RunRecorder
from jmarl.runs.single import resumed_values
from tests.support.long import all_but_long
from tests.support.tiny_runs import configured, digest, go, resumed, same_runs, told

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of each kind of policy."""
    base, runs = tmp_path_factory.mktemp("whole"), {}

    def of(algorithm):
        if algorithm not in runs:
            go(configured(base / algorithm, algorithm))
            runs[algorithm] = base / algorithm
        return runs[algorithm]

    return of


@pytest.mark.parametrize(
    "algorithm",
    all_but_long(["mat", "mappo", "rmappo", "ppo"], "ppo"),
)
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(algorithm, whole, tmp_path):
    """From the checkpoint of update 4, as a power failure in update 5 or 6 would leave it."""
    shutil.copytree(whole(algorithm), tmp_path / "x")
    shutil.rmtree(tmp_path / "x" / "checkpoints" / "update_6")
    resumed(tmp_path / "x")
    same_runs(tmp_path / "x", whole(algorithm))


@pytest.mark.long
def test_one_seed_gives_one_run_and_another_another(whole, tmp_path):
    go(configured(tmp_path / "again"))
    same_runs(tmp_path / "again", whole("ippo"))
    go(configured(tmp_path / "other", seed=1))
    assert digest(tmp_path / "other", 6) != digest(whole("ippo"), 6)


def test_a_torn_checkpoint_and_torn_lines_are_got_over(whole, tmp_path):
    shutil.copytree(whole("ippo"), tmp_path / "x")
    metrics = tmp_path / "x" / "metrics.jsonl"
    metrics.write_text(metrics.read_text(encoding="utf-8")[:-30])
    for file in (tmp_path / "x" / "checkpoints" / "update_6").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.warns(UserWarning, match="update 6 is damaged"):
        resumed(tmp_path / "x")
    same_runs(tmp_path / "x", whole("ippo"))
    assert (tmp_path / "x" / "checkpoints" / "damaged_6_0").is_dir()


def test_a_run_is_taken_up_from_its_latest_with_its_best(tmp_path):
    config = configured(tmp_path)
    population = make_population(config)
    states = [jax.jit(population.trainer.init)(jax.random.key(i)) for i in range(2)]
    disk = RunRecorder(tmp_path, config)
    for update, state, score in ((2, states[0], 9.0), (4, states[1], 1.0)):
        disk.checkpoints.save(update, state, score, {"seconds": update / 8})
    disk.wait()
    start = disk.restore(population)
    disk.close()
    assert (start.update, start.seconds) == (4, 0.5)
    assert (start.best.score.tolist(), start.best.update.tolist()) == ([9.0], [2])
    pairs = (
        (start.states.policies, states[1].policies),
        (start.best.parameters, states[0].policies),
    )
    for ours, theirs in pairs:
        for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_array_equal(one, other[None])


def test_more_budget_is_allowed_and_a_finished_run_says_so(whole, tmp_path):
    shutil.copytree(whole("ippo"), tmp_path / "x")
    with pytest.raises(ConfigError, match=r"done its 6 updates.*--total-updates 12"):
        resumed(tmp_path / "x")
    resumed(tmp_path / "x", total_updates=8)
    assert [line["update"] for line in told(tmp_path / "x", "metrics.jsonl")][-2:] == [7, 8]
    assert (
        yaml.safe_load((tmp_path / "x" / "config.yaml").read_text(encoding="utf-8"))[
            "total_updates"
        ]
        == 8
    )


def test_another_network_or_world_is_refused_by_name(whole):
    path = whole("ippo")
    with pytest.raises(ConfigError, match=r"net\.hidden was \[8\], now \[16\]; num_envs was 4"):
        resumed(path, num_envs=8, net={"hidden": [16]}, total_updates=9)
    with pytest.raises(ConfigError, match="seed was 0, now 1"):
        resumed(path, seed=1, total_updates=9)
    with pytest.raises(ConfigError, match="not a run"):
        resumed_values(path / "nothing")


def test_two_processes_do_not_write_one_run(whole):
    with (
        run_dir.lock(whole("ippo")),
        pytest.raises(ConfigError, match="another process"),
    ):
        resumed(whole("ippo"), total_updates=9)


def test_what_is_not_finite_stops_the_run_and_is_named(tmp_path):
    """The state that went wrong is not saved."""
    wild = {"epochs": 1, "num_minibatches": 1, "lr": 1e30, "lr_schedule": "constant"}
    with pytest.raises(RunError, match=r"update \d: losses/\w+ is (nan|inf|-inf) \(.*checkpoint"):
        go(configured(tmp_path / "x", eval_every=1, ppo=wild))
    saved = [int(path.name.split("_")[1]) for path in (tmp_path / "x" / "checkpoints").iterdir()]
    lines = read_lines(tmp_path / "x" / "metrics.jsonl")
    assert max(saved, default=0) <= len(lines) < 6


def test_what_is_not_finite_can_be_left_out(tmp_path):
    """The critic's rate, 10³⁹, makes every step infinite after a finite gradient; none is kept."""
    wild = {"epochs": 1, "num_minibatches": 1, "lr": 1e30, "lr_schedule": "constant"}
    wild |= {"critic_lr_factor": 1e9}
    outcome = go(configured(tmp_path / "x", on_nonfinite="skip", ppo=wild))
    lines = told(tmp_path / "x", "metrics.jsonl")
    assert lines[-1]["update"] == 6
    assert all(line["losses/skipped"] == 1 for line in lines)
    assert all_finite(outcome.state.policies)
    assert all(np.isfinite(line["losses/grad_norm"]) for line in lines)


@pytest.mark.skipif(importlib.util.find_spec("wandb") is not None, reason="wandb is installed")
def test_a_missing_package_for_curves_is_named_with_its_extra(tmp_path):
    with pytest.raises(ConfigError, match=r'pip install "jmarl\[wandb\]"'):
        go(configured(tmp_path / "x", wandb=True))


def test_a_refused_resume_leaves_the_configuration_as_it_was(tmp_path):
    go(configured(tmp_path / "run", total_updates=1))
    before = (tmp_path / "run" / "config.yaml").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="has done its 1 updates"):
        resumed(tmp_path / "run", eval_episodes=9)
    with run_dir.lock(tmp_path / "run"), pytest.raises(ConfigError, match="another process"):
        resumed(tmp_path / "run", total_updates=2)
    assert (tmp_path / "run" / "config.yaml").read_text(encoding="utf-8") == before
