"""Settings, their labels and ranks, against numpy, scipy and what sweeps write."""

import json

import numpy as np
from scipy import stats

from jmarl.config.train_config import to_yaml
from jmarl.reports.data import find_runs, read_run
from jmarl.reports.groups import compared
from jmarl.sweeps.results import member_name, write_results
from tests.support.report_files import (
    config_of,
    contested,
    evaluated,
    write_lines,
    write_run,
)
from tests.support.sweep_files import planned, write_sweep


def read(*paths):
    return compared([read_run(path) for path in paths])


def students(scores):
    """The interval of the interquartile mean of four to 31 scores."""
    error = 1.1 * stats.sem(scores)
    return stats.t.interval(0.95, len(scores) - 1, stats.trim_mean(scores, 0.25), error)


def test_runs_that_differ_by_chance_only_are_one_setting(tmp_path):
    scores = [-5.0, -3.0, -4.0, -9.0, -2.0]
    for seed, score in enumerate(scores):
        own = config_of(seed, run_dir=f"/x/{seed}", quiet=bool(seed))
        write_run(tmp_path / f"a{seed}", own, [-20.0, score], absolute=score + 1)
    (world,) = read(*find_runs([tmp_path]))
    (setting,) = world.settings
    assert (setting.label, setting.rank, len(setting.runs)) == ("mappo", 1, 5)
    ((team, greedy, sampled, best),) = setting.finals
    assert team == ""
    assert world.over == "seeds"
    np.testing.assert_allclose(greedy.iqm, stats.trim_mean(scores, 0.25))
    np.testing.assert_allclose([greedy.low, greedy.high], students(scores))
    np.testing.assert_allclose(greedy.mean, np.mean(scores))
    np.testing.assert_allclose(sampled.iqm, greedy.iqm - 1)
    np.testing.assert_allclose(best.mean, np.mean(scores) + 1)
    assert (greedy.runs, greedy.steps) == (5, 1000)
    assert setting.best_run.seed == 4


def test_single_runs_have_intervals_over_episodes(tmp_path):
    for lr, score in ((0.1, -5.0), (0.2, -3.0)):
        write_run(tmp_path / str(lr), config_of(ppo={"lr": lr}), [-20.0, score])
    (world,) = read(*find_runs([tmp_path]))
    assert world.over == "episodes"
    assert [one.label for one in world.settings] == ["mappo, lr=0.2", "mappo, lr=0.1"]
    assert world.settings[0].greedy[:4] == (-2.5, -3.25, -2.25, -3.0)


def test_a_single_run_beside_several_seeds_is_its_mean(tmp_path):
    """−5 + 0.5 over episodes would outrank −4.8, the mean of two."""
    write_run(tmp_path / "one", config_of(algorithm="ippo"), [-20.0, -5.0])
    for seed, score in enumerate((-4.6, -5.0)):
        write_run(tmp_path / f"two{seed}", config_of(seed), [-20.0, score])
    (world,) = read(*find_runs([tmp_path]))
    assert [(one.label, one.greedy.iqm) for one in world.settings] == [
        ("mappo", -4.8),
        ("ippo", -5.0),
    ]
    assert world.settings[1].greedy.low is None


def test_unfinished_and_failed_runs_are_ranked_last_and_told(tmp_path):
    write_run(tmp_path / "whole", config_of(ppo={"lr": 0.1}), [-20.0, -9.0])
    write_run(tmp_path / "half", config_of(ppo={"lr": 0.2}), [-20.0, -1.0], updates=5)
    write_run(tmp_path / "new", config_of(ppo={"lr": 0.3}), updates=1, finished=False)
    broken = write_run(tmp_path / "broken", config_of(ppo={"lr": 0.4}))
    write_lines(broken / "evals.jsonl", [evaluated(10, 0.0, **{"eval/return_mean": None})])
    (world,) = read(*find_runs([tmp_path]))
    ranks = {one.label.rpartition("=")[2]: one.rank for one in world.settings}
    assert ranks == {"0.1": 1, "0.2": 2, "0.3": None, "0.4": None}
    assert world.settings[-1].greedy is None


def test_only_seeds_that_went_furthest_count(tmp_path):
    write_run(tmp_path / "a", config_of(0), [-20.0, -9.0])
    write_run(tmp_path / "b", config_of(1), [-20.0, -1.0], updates=5)
    (world,) = read(*find_runs([tmp_path]))
    greedy = world.settings[0].greedy
    assert (greedy.iqm, greedy.low, greedy.runs) == (-9.0, None, 1)


def test_labels_name_what_differs_and_never_repeat(tmp_path):
    write_run(tmp_path / "mat", config_of(algorithm="mat", net={"hidden": [4]}), [1.0])
    write_run(tmp_path / "a", config_of(net={"hidden": [4]}), [1.0])
    write_run(tmp_path / "b", config_of(net={"hidden": [8, 8]}, ppo={"lr": 1e-5}), [1.0])
    (world,) = read(*find_runs([tmp_path]))
    labels = {"mat", "mappo, hidden=4, lr=0.001", "mappo, hidden=8×8, lr=1e-05"}
    assert {one.label for one in world.settings} == labels
    many = {"lr": 1, "gamma": 2, "a": 3, "b": 4}
    write_run(tmp_path / "x" / "same", config_of(ppo=many), [1.0])
    write_run(tmp_path / "y" / "same", config_of(ppo=many | {"b": 5}), [1.0])
    (world,) = read(tmp_path / "x" / "same", tmp_path / "y" / "same", tmp_path / "b")
    labels = [one.label for one in world.settings]
    assert len(set(labels)) == 3
    assert {label.partition(" (")[0] for label in labels} == {"same", "b"}


def test_a_run_that_failed_has_no_score(tmp_path):
    """Its returns look best, but NaN logits choose action 0."""
    good = write_run(tmp_path / "good", config_of(), [-3.0])
    bad = write_run(tmp_path / "bad", config_of(ppo={"lr": 1e30}), [-1.0])
    lines = [evaluated(0, -1.0, failed="update 2: losses/entropy is nan")]
    write_lines(bad / "evals.jsonl", lines)
    (world,) = read(bad, good)
    assert [one.rank for one in world.settings] == [1, None]
    assert world.settings[0].runs[0].path == good
    assert world.settings[1].greedy is None


def test_seeds_are_called_by_their_group_and_members_by_what_was_swept(tmp_path):
    many = {"lr": 1, "gamma": 2, "a": 3, "b": 4}
    seed = write_run(tmp_path / "group" / "seed_0", config_of(), [0.0])
    (seed / "member.json").write_text("{}", encoding="utf-8")
    member = write_run(tmp_path / "sweep" / "member_000", config_of(ppo=many), [-1.0])
    (world,) = read(seed, member)
    labels = [one.label for one in world.settings]
    assert labels == ["group", "mappo, lr=1, gamma=2, a=3, b=4"]


def test_a_best_run_may_score_zero(tmp_path):
    for seed, score in enumerate((-1.0, 0.0, -2.0)):
        write_run(tmp_path / str(seed), config_of(seed), [score])
    (world,) = read(*find_runs([tmp_path]))
    assert world.settings[0].best_run.seed == 1


def test_worlds_are_apart_and_opponents_are_not_ranked(tmp_path):
    write_run(tmp_path / "a", config_of(), [1.0])
    write_run(tmp_path / "b", config_of(env_options={"num_agents": 5}), [2.0])
    tag = write_run(tmp_path / "c", config_of(env="mpe/simple_tag"))
    write_lines(tag / "evals.jsonl", [contested(1, adversary=3.0, good=-26.0)])
    worlds = read(*find_runs([tmp_path]))
    assert [world.name for world in worlds] == [
        "probe/constant",
        "probe/constant (num_agents=5)",
        "mpe/simple_tag",
    ]
    assert [world.opponents for world in worlds] == [False, False, True]
    assert [world.settings[0].rank for world in worlds] == [1, 1, None]
    finals = worlds[2].settings[0].finals
    assert [(one.team, one.greedy[:4], one.sampled.mean) for one in finals] == [
        ("adversary", (3.5, 2.75, 3.75, 3.0), 2.0),
        ("good", (-25.5, -26.25, -25.25, -26.0), -27.0),
    ]


def test_roles_of_one_team_are_no_opponents(tmp_path):
    """They have returns of their own, and names without a number."""
    run = write_run(tmp_path / "a", config_of())
    roles = {"eval/return_mean/leader": -1.0, "eval/return_mean/follower": -2.0}
    write_lines(run / "evals.jsonl", [evaluated(1, -3.0, **roles)])
    (world,) = read(run)
    assert not world.opponents
    assert (world.settings[0].rank, world.settings[0].greedy.mean) == (1, -3.0)


def test_settings_of_a_sweep_are_ranked_as_the_sweep_ranks_them(tmp_path):
    """Three learning rates × two discounts × two seeds: one setting fails with a seed, one was
    stopped halfway, though it was the best until then."""
    made = planned(
        base={"total_updates": 10},
        grid={"lr": [1e-4, 1e-3, 1e-2], "gamma": [0.9, 0.99]},
        seeds=2,
    )
    rng = np.random.default_rng(0)
    returns = [list(rng.normal(-50, 10, size=11)) for _ in made.members]
    returns[2][-1] = None
    returns[6], returns[7] = [-90.0, 9.0, 9.0, 9.0], [-90.0, 9.0, 9.0, 9.0]
    write_sweep(tmp_path, made, returns)
    for member in made.members:
        folder = tmp_path / member_name(member.index, len(made.members))
        (folder / "config.yaml").write_text(to_yaml(member.config), encoding="utf-8")
    write_results(tmp_path, made)
    told = json.loads((tmp_path / "ranking.json").read_text(encoding="utf-8"))
    cases = {f"setting/{one['setting']}": one["settings"] for one in told["settings"]}
    figures = {(row["case"], row["metric"]): row["value"] for row in told["rows"]}
    (world,) = read(*find_runs([tmp_path]))
    assert len(world.settings) == 6
    by_rank = sorted(cases, key=lambda case: figures[case, "rank"])
    for case, ours in zip(by_rank, world.settings, strict=True):
        assert {name: ours.config[name] for name in cases[case]} == cases[case]
        assert ours.rank == figures[case, "rank"]
        metrics = ("return_iqm", "return_mean", "steps")
        expected = [figures[case, metric] for metric in metrics]
        greedy = ours.greedy
        np.testing.assert_allclose([greedy.iqm, greedy.mean, greedy.steps], expected)
        if greedy.runs > 1:
            within = [figures[case, f"return_{end}"] for end in ("low", "high")]
            np.testing.assert_allclose([greedy.low, greedy.high], within)
