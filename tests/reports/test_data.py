"""Run directories in every state: what is read, and what is refused."""

import json

import pytest

from jmarl.errors import ConfigError
from jmarl.reports.data import UNFINISHED, find_runs, flat, read_run
from tests.support.report_files import CONFIG, config_of, evaluated, write_lines, write_run


def test_runs_are_found_by_themselves_in_groups_and_once(tmp_path):
    alone = write_run(tmp_path / "alone", CONFIG)
    group = write_run(tmp_path / "seeds", config_of(seeds=2))
    seeds = [write_run(group / f"seed_{i}", config_of(i)) for i in (9, 10)]
    sweep = tmp_path / "sweep"
    members = [write_run(sweep / f"member_00{i}", config_of(i)) for i in range(2)]
    (sweep / "group_0").mkdir()
    assert find_runs([alone]) == [alone]
    assert sorted(find_runs([group])) == sorted(seeds)
    assert find_runs([sweep]) == members
    assert find_runs([seeds[0], alone, group]) == [seeds[0], alone, seeds[1]]
    assert sorted(find_runs([tmp_path])) == sorted([alone, *seeds, *members])


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no directory '.*nowhere'"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match="is not a run"):
        find_runs([tmp_path])
    (tmp_path / "config.yaml").write_text("a: [", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config.yaml' is not YAML"):
        read_run(tmp_path)


def test_a_finished_run_is_read_whole(tmp_path):
    run = read_run(write_run(tmp_path / "a", config_of(3), [1.0, 2.0, 3.0], absolute=4.0))
    assert (run.seed, run.state, run.steps, run.budget) == (3, "finished", 1000, 1000)
    assert [line["eval/return_mean"] for line in run.evals] == [1.0, 2.0, 3.0]
    assert run.absolute is not None
    assert run.absolute["absolute/return_mean"] == 4.0
    assert len(run.metrics) == 10
    assert run.config["ppo.lr"] == 0.001


def test_a_crashed_run_is_read_up_to_its_torn_line(tmp_path):
    path = write_run(tmp_path / "a", CONFIG, [1.0, 2.0], finished=False, torn='{"update": 11, "st')
    (path / "metrics.jsonl").write_bytes((path / "metrics.jsonl").read_bytes() + b"\xff\x00")
    run = read_run(path)
    assert (len(run.evals), len(run.metrics), run.state) == (2, 10, UNFINISHED)
    assert not run.empty


def test_a_run_that_has_only_begun_is_empty(tmp_path):
    path = write_run(tmp_path / "a", CONFIG, updates=0, finished=False)
    assert read_run(path).empty
    (path / "evals.jsonl").unlink()
    (path / "metrics.jsonl").unlink()
    assert read_run(path).empty
    assert read_run(path).steps == 0


def test_lines_without_steps_and_strange_lines_are_passed_over(tmp_path):
    path = write_run(tmp_path / "a", CONFIG)
    write_lines(path / "evals.jsonl", [3, "x", None, {"steps": None}, evaluated(1, 5.0)])
    assert [line["steps"] for line in read_run(path).evals] == [100]


@pytest.mark.parametrize(
    ("summary", "state"),
    [
        ({"finished": False, "updates": 7}, "stopped after update 7"),
        ({"finished": True, "updates": 7, "failed": "update 3: x is nan"}, "failed: update 3"),
        ([], UNFINISHED),
        ({}, UNFINISHED),
    ],
)
def test_how_a_run_ended_is_told(tmp_path, summary, state):
    path = write_run(tmp_path / "a", CONFIG)
    (path / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    assert read_run(path).state.startswith(state)


def test_a_budget_is_whole_updates_and_may_be_unknown(tmp_path):
    budgets = ({"total_steps": 1099}, {"total_updates": 3}, {"num_envs": 0}, {"num_envs": "x"})
    runs = [
        read_run(write_run(tmp_path / str(i), config_of(**values)))
        for i, values in enumerate(budgets)
    ]
    assert [run.budget for run in runs] == [1000, 300, None, None]


def test_sections_are_flattened_once():
    assert flat({"a": 1, "net": {"x": {"y": 2}}, 3: 4}) == {"a": 1, "net.x": {"y": 2}, "3": 4}


def test_a_name_of_any_bytes_can_be_printed(tmp_path):
    name = b"run-\xff".decode(errors="surrogateescape")
    run = read_run(write_run(tmp_path / name, CONFIG))
    assert run.name.endswith("run-?")
