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
from jmarl.execution.members import Members, Parameters, Snapshot
from jmarl.execution.population import make_crew
from jmarl.runs.multi_seed import GroupDisk, Place, run_group
from jmarl.runs.saved_parameters import saved_parameters
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


def test_each_policy_is_loaded_by_itself(seeds):
    path, outcome = seeds
    latest = jmarl.load_policy(path / "seed_6", which="latest")
    for ours, theirs in zip(
        jax.tree.leaves(latest.params), jax.tree.leaves(outcome.state.params), strict=True
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
    crew, alive = make_crew(config), [1, 2]
    everybody = jax.jit(crew.population.init)(jax.random.split(jax.random.key(0), 3))
    states = crew.population.take(everybody, np.array(alive))
    best = jax.tree.map(lambda x: 2 * x, Parameters(everybody.params, everybody.normalisers))
    hyper = jax.tree.map(jnp.asarray, crew.hyper)
    places = [Place(tmp_path / f"seed_{i}", config) for i in range(3)]
    disk = GroupDisk(tmp_path, config, places)
    disk.save(4, Snapshot(states, best, hyper), 0.0, {"alive": alive, "best_score": [0.0] * 3})
    disk.close()
    expected = ((0, "latest", 2), (1, "latest", 1), (2, "latest", 1), (1, "best", 2))
    for member, which, factor in expected:
        places[member].create(tmp_path, member)
        found = saved_parameters(places[member].path, crew.trainer, which).params
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(everybody.params), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_array_equal(ours, factor * theirs[member])


def test_a_member_that_fails_does_not_stop_the_others(tmp_path):
    config = configured(tmp_path / "run", seeds=2, total_updates=3, members_per_batch=2)
    crew = make_crew(config)
    rates = np.array([1e-3, 1e30])
    members = Members(crew.seeds, crew.hyper.replace(lr=rates))
    places = [Place(tmp_path / name, config) for name in ("good", "bad")]
    (tmp_path / "run").mkdir()
    crew = make_crew(config, members)
    outcome = run_group(config, crew, tmp_path / "run", places, Console(quiet=True))
    assert set(outcome.failed) == {1}
    assert "is nan" in outcome.failed[1] or "is inf" in outcome.failed[1]
    good, bad = (json.loads((p.path / "summary.json").read_text(encoding="utf-8")) for p in places)
    assert "failed" not in good
    assert bad["failed"] == outcome.failed[1]
    assert np.isfinite(good["absolute"]["absolute/return_mean"])


def test_when_all_fail_the_run_stops(tmp_path):
    ppo = {"epochs": 1, "num_minibatches": 1, "lr": 1e30}
    config = configured(tmp_path / "run", seeds=2, members_per_batch=2, ppo=ppo)
    with pytest.raises(RunError, match=r"update \d: losses/\w+ is (nan|inf|-inf)"):
        go(config)
