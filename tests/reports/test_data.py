"""Run directories in every state: what is read, and what is refused."""

import json
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from jmarl.errors import ConfigError
from jmarl.reports import data
from jmarl.reports.data import UNFINISHED, dotted, find_runs, read_run, stride
from jmarl.reports.opponents import opposing_teams
from tests.support.report_files import CONFIG, config_of, evaluated, write_lines, write_run

STORED = Path(__file__).parents[1] / "support" / "stored_runs"


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
    assert run.evals.columns["eval/return_mean"].tolist() == [1.0, 2.0, 3.0]
    assert run.evals.last["eval/return_mean"] == 3.0
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


def test_opponents_of_earlier_versions_are_recognised_by_their_figures(tmp_path):
    """Lines that a version before wrote: returns of all agents, of teams and of agents."""
    with tarfile.open(STORED / "format_1.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    tag, spread = (read_run(tmp_path / "runs" / name) for name in ("teams", "mat"))
    assert (tag.teams, spread.teams) == (("adversary", "good"), ())
    for names in (tag.evals.columns, tag.evals.last, tag.absolute):
        returns = [key for key in names if "/return_" in key]
        assert returns
        assert all(key.count("/") == 2 for key in returns)
    assert "eval/return_mean" in spread.evals.columns


@pytest.mark.parametrize(
    ("lines", "teams"),
    [
        ([[5.0, 2.0, 3.0, 2.0, 3.0]], "ab"),
        ([[0.0, 4.0, -4.0, 4.0, -4.0], [0.0] * 5], "ab"),  # a game of zero sum
        ([[0.0] * 5], ""),  # nothing says that they are opponents
        ([[5.0, 2.0, 3.0, 2.0, 3.0], [5.0, 2.0, 3.0, 2.0, 4.0]], ""),
        ([[6.0, 1.0, 2.0, 3.0, 0.0]], ""),  # four agents
        ([[None, None, None, None, None], [5.0, 2.0, 3.0, 2.0, 3.0]], "ab"),
        ([[3.0, 1.0, 2.0]], ""),  # two agents
        ([[6.0, 1.0, 2.0, 3.0, 1.0, 2.0, 1.5, 1.5]], "abc"),
        ([], ""),
    ],
)
def test_sums_over_teams_and_over_agents_tell_opponents(lines, teams):
    keys = ["eval/return_mean", *(f"eval/return_mean/{name}" for name in "abcdefg")]
    entries = [dict(zip(keys, values, strict=False)) for values in lines]
    assert opposing_teams(entries) == tuple(teams)


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
    with pytest.warns(UserWarning, match=r"evals\.jsonl': 4 damaged lines are skipped\.$"):
        assert read_run(path).evals.steps.tolist() == [100]


def test_of_many_lines_every_second_is_kept_and_the_last(tmp_path, monkeypatch):
    """Ten lines of metrics and six of evaluations; the seventh has the final score."""
    path = write_run(tmp_path / "a", CONFIG, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], absolute=9.0)
    assert stride([path]) == 1
    monkeypatch.setattr(data, "MOST_LINES", 9)
    assert stride([path, tmp_path / "nowhere"]) == 2  # 17 lines
    run = read_run(path, 2, lambda name: name == "losses/entropy")
    assert run.metrics.steps.tolist() == [100, 300, 500, 700, 900, 1000]
    assert run.evals.steps.tolist() == [0, 400, 800, 1000]
    assert (len(run.metrics), len(run.evals), run.steps) == (10, 6, 1000)
    assert run.evals.last["eval/return_mean"] == 5.0
    assert run.absolute["absolute/return_mean"] == 9.0
    assert run.metrics.columns.keys() == {"losses/entropy", "seconds"}
    assert not run.evals.columns.keys() - {"seconds"}


def test_a_long_file_is_read_in_little_memory(tmp_path):
    """Of 30,000 lines, 20 MB as Python's objects, two columns."""
    path = write_run(tmp_path / "a", CONFIG)
    text = (path / "metrics.jsonl").read_text(encoding="utf-8")
    (path / "metrics.jsonl").write_text(text * 3000, encoding="utf-8")
    tracemalloc.start()
    run = read_run(path, 1, lambda name: name == "losses/entropy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(run.metrics) == len(run.metrics.steps) == 30_000
    assert peak < 3e6


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


def test_a_run_of_a_newer_format_is_refused(tmp_path):
    path = write_run(tmp_path / "a", CONFIG)
    (path / "versions.json").write_text('{"format": 99, "jmarl": "7.1"}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"format 99, written by jmarl 7\.1"):
        read_run(path)


def test_a_budget_is_whole_updates_and_may_be_unknown(tmp_path):
    budgets = ({"total_steps": 1099}, {"total_updates": 3}, {"num_envs": 0}, {"num_envs": "x"})
    runs = [
        read_run(write_run(tmp_path / str(i), config_of(**values)))
        for i, values in enumerate(budgets)
    ]
    assert [run.budget for run in runs] == [1000, 300, None, None]


def test_sections_are_flattened_once():
    assert dotted({"a": 1, "net": {"x": {"y": 2}}, 3: 4}) == {"a": 1, "net.x": {"y": 2}, "3": 4}


def test_a_name_of_any_bytes_can_be_printed(tmp_path):
    name = b"run-\xff".decode(errors="surrogateescape")
    run = read_run(write_run(tmp_path / name, CONFIG))
    assert run.name.endswith("run-?")
