"""Several seeds on disk: each is a run, and all go on together."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import jmarl
from jmarl.errors import ConfigError, RunError
from jmarl.execution.members import Members, Snapshot
from jmarl.execution.population import make_population
from jmarl.runs.loop import ResumePoint, Runner
from jmarl.runs.multi_seed import run_group
from jmarl.runs.progress import _formatted
from jmarl.runs.recorder import MemberDirectory, NullRecorder, RunRecorder
from jmarl.runs.saved_parameters import saved_parameters
from jmarl.runs.single import seeds_summary
from tests.support.tiny_runs import configured, digest, go, resumed, told

pytestmark = pytest.mark.usefixtures("unwatched")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory, unwatched):
    """Three seeds, two of them side by side."""
    path = tmp_path_factory.mktemp("seeds") / "run"
    outcome = go(configured(path, seed=4, seeds=3, members_per_batch=2))
    return path, outcome


def test_every_seed_has_its_own_figures(seeds):
    path, outcome = seeds
    for seed in (4, 5, 6):
        own = path / f"seed_{seed}"
        assert [line["update"] for line in told(own, "metrics.jsonl")] == list(range(1, 7))
        assert [line["update"] for line in told(own, "evals.jsonl")] == [0, 2, 4, 6, 6]
        summary = json.loads((own / "summary.json").read_text(encoding="utf-8"))
        assert summary["seed"] == seed
        assert summary["finished"]
    assert outcome.state.update.tolist() == [6, 6, 6]


def test_a_seed_is_the_run_that_it_would_be_alone(seeds, tmp_path):
    path, _ = seeds
    go(configured(tmp_path / "alone", seed=5))
    for name in ("metrics.jsonl", "evals.jsonl"):
        ours, theirs = told(path / "seed_5", name), told(tmp_path / "alone", name)
        for mine, alone in zip(ours, theirs, strict=True):
            assert mine.pop("member") == 1
            assert mine.keys() == alone.keys()
            for key, value in mine.items():
                if value is None:  # no episode has ended
                    assert alone[key] is None
                    continue
                np.testing.assert_allclose(value, alone[key], rtol=2e-3, atol=1e-3, err_msg=key)


def test_the_whole_says_how_seeds_lie(seeds):
    path, _ = seeds
    lasts = [told(path / f"seed_{seed}", "evals.jsonl")[-2] for seed in (4, 5, 6)]
    returns = [last["eval/return_mean"] for last in lasts]
    overall = told(path, "evals.jsonl")[-2]
    np.testing.assert_allclose(overall["eval/return_mean"], np.mean(returns))
    np.testing.assert_allclose(overall["members/return_best"], max(returns))
    assert overall["members/return_iqm_low"] <= overall["members/return_iqm"]
    summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    np.testing.assert_allclose(summary["evaluation"]["return_mean"], np.mean(returns))
    assert summary["evaluation"]["seeds"] == 3
    tree = json.loads((path / "marl_eval.json").read_text(encoding="utf-8"))
    assert set(tree["mpe"]["simple_spread"]["ippo"]) == {"seed_4", "seed_5", "seed_6"}


def test_a_single_seed_that_is_left_has_no_interval_on_the_screen():
    names = ("members/return_iqm", "members/return_iqm_low", "members/return_iqm_high")
    several, alone = (dict(zip(names, (3.0, low, 4.0), strict=True)) for low in (2.0, np.nan))
    assert _formatted(several) == ["IQM 3.0 (95%: 2.0 … 4.0)"]
    assert _formatted(alone) == []


def test_each_policy_is_loaded_by_itself(seeds):
    path, outcome = seeds
    latest = jmarl.load_policy(path / "seed_6", which="latest")
    for ours, theirs in zip(
        jax.tree.leaves(latest.policies), jax.tree.leaves(outcome.state.policies), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs[2])
    best = jmarl.load_policy(path / "seed_4")
    assert best.act(np.zeros((3, 18))).action.shape == (3,)
    with pytest.raises(ConfigError, match=r"3 seeds; choose one of them, such as .*seed_4"):
        jmarl.load_policy(path)


def test_resumed_seeds_are_the_uninterrupted_ones_bit_for_bit(seeds, tmp_path):
    """From the checkpoint of update 4, as a power failure in update 5 or 6 would leave it."""
    whole, again = seeds[0], tmp_path / "run"
    shutil.copytree(whole, again)
    shutil.rmtree(again / "checkpoints" / "update_6")
    resumed(again)
    assert digest(again, 6) == digest(whole, 6)
    for own in ("seed_4", "seed_5", "seed_6", "."):
        for name in ("metrics.jsonl", "evals.jsonl"):
            assert told(again / own, name) == told(whole / own, name)


def test_policies_are_found_by_member_once_some_are_dropped(tmp_path):
    """Of three members the second and the third still train; best parameters are twice as large."""
    config = configured(tmp_path, seeds=3)
    population, alive = make_population(config), [1, 2]
    everybody = jax.jit(population.vmapped.init)(jax.random.split(jax.random.key(0), 3))
    states = population.vmapped.take(everybody, np.array(alive))
    best = jax.tree.map(lambda x: 2 * x, everybody.policies)
    hyper = jax.tree.map(jnp.asarray, population.hyper)
    places = [MemberDirectory(tmp_path / f"seed_{i}", config) for i in range(3)]
    disk = RunRecorder(tmp_path, config, places)
    disk.save(4, Snapshot(states, best, hyper), 0.0, {"alive": alive, "best_score": [0.0] * 3})
    disk.close()
    expected = ((0, "latest", 2), (1, "latest", 1), (2, "latest", 1), (1, "best", 2))
    for member, which, factor in expected:
        places[member].create(tmp_path, member)
        given = (population.trainer, population.hyper, which)
        found = saved_parameters(places[member].path, *given)
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(everybody.policies), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_array_equal(ours, factor * theirs[member])


def test_a_member_that_fails_does_not_stop_the_others(tmp_path):
    config = configured(tmp_path / "run", seeds=2, total_updates=3, members_per_batch=2)
    population = make_population(config)
    rates = np.array([1e-3, 1e30])
    members = Members(population.seeds, population.hyper._replace(lr=rates))
    places = [MemberDirectory(tmp_path / name, config) for name in ("good", "bad")]
    (tmp_path / "run").mkdir()
    population = make_population(config, members)
    outcome = run_group(config, population, tmp_path / "run", places, Console(quiet=True))
    assert set(outcome.failed) == {1}
    assert "is nan" in outcome.failed[1] or "is inf" in outcome.failed[1]
    good, bad = (json.loads((p.path / "summary.json").read_text(encoding="utf-8")) for p in places)
    assert "failed" not in good
    assert bad["failed"] == outcome.failed[1]
    assert np.isfinite(good["absolute"]["absolute/return_mean"])
    lines, failed, overall = (
        told(path, "evals.jsonl") for path in (places[0].path, places[1].path, tmp_path / "run")
    )
    assert "failed" not in lines[-1]
    assert failed[-1]["failed"] == outcome.failed[1]
    for own, mean in zip(lines, overall, strict=True):
        if mean["update"]:  # before the first update nobody has failed
            assert mean["members/failed"] == 1
            name = "absolute/return_mean" if "absolute" in own else "eval/return_mean"
            assert mean[name] == own[name]
    assert seeds_summary(outcome)["evaluation"]["failed"] == 1


def test_a_member_that_copies_another_one_has_failed_no_longer(tmp_path):
    class Copies:
        def apply(self, population, scores, update):
            return [1]

    config = configured(tmp_path, seeds=2)
    point = ResumePoint(failed={0: "update 1: x is nan", 1: "update 2: x is nan"})
    runner = Runner(config, None, point, NullRecorder(), None, Copies())
    runner._select(np.zeros(2), 3)
    assert runner.failed == {0: "update 1: x is nan"}


def test_when_all_fail_the_run_stops(tmp_path):
    ppo = {"epochs": 1, "num_minibatches": 1, "lr": 1e30}
    config = configured(tmp_path / "run", seeds=2, members_per_batch=2, ppo=ppo)
    with pytest.raises(RunError, match=r"update \d: losses/\w+ is (nan|inf|-inf)"):
        go(config)
