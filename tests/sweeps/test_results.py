"""What a sweep found: ranks worked by hand, and files that are read again."""

import csv
import io
import json
import math

import pytest
from rich.console import Console

from jmarl.commands.train import parse
from jmarl.config.train_config import build, read_preset
from jmarl.runs.files import member_name, read_lines
from jmarl.sweeps.results import show, write_results
from tests.support.sweep_files import STEPS, planned, write_member, write_sweep

BUDGET = {"total_updates": 4, "algorithm": "ippo"}


@pytest.fixture
def finished(tmp_path):
    """Three learning rates, four seeds each; the second is the best, one seed of the third fails.
    Of four numbers the interquartile mean is that of the middle two."""
    made = planned(base=BUDGET, grid={"lr": [1e-3, 2e-3, 3e-3]}, seeds=4)
    last = [-10, -11, -12, -90, -1, -2, -4, -5, 0, 0, 0, None]
    write_sweep(tmp_path, made, [[-50, -40, -30, -20, value] for value in last])
    return tmp_path, made, write_results(tmp_path, made)


def test_settings_are_ranked_by_the_middle_of_their_seeds(finished):
    _, _, ranking = finished
    assert [one.setting for one in ranking.settings] == [1, 0, 2]
    assert [one.rank for one in ranking.settings] == [1, 2, 3]
    first, second, third = ranking.settings
    assert (first.iqm, first.mean) == (-3.0, -3.0)  # (-2 - 4)/2, -12/4
    half = 1.1 * 3.182446305 * math.sqrt(10 / 3) / 2  # t(3) · s / √4; s² = (4 + 1 + 1 + 4)/3
    assert (first.low, first.high) == pytest.approx((-3 - half, -3 + half))
    assert (second.iqm, second.mean) == (-11.5, -30.75)  # (-11 - 12)/2, -123/4
    assert (third.iqm, third.seeds, third.failed) == (0.0, 3, 1)  # better, but not every time
    assert {one.steps for one in ranking.settings} == {4 * STEPS}
    assert ranking.best == first


def test_figures_have_the_form_of_all_figures(finished):
    path, _, ranking = finished
    told = json.loads((path / "ranking.json").read_text(encoding="utf-8"))
    assert {"commit", "command", "versions"} <= set(told["meta"])
    rows = {(row["case"], row["metric"]): row["value"] for row in told["rows"]}
    assert {row["subject"] for row in told["rows"]} == {"ippo"}
    assert rows["setting/1", "return_iqm"] == -3.0
    assert rows["setting/1", "return_low"] == ranking.settings[0].low
    assert rows["setting/1", "rank"] == 1
    assert rows["setting/2", "steps"] == 4 * STEPS
    assert told["settings"][0]["settings"] == {"ppo.lr": 2e-3}


def test_tables_are_written_for_people_and_programs(finished):
    path, _, _ = finished
    rows = list(csv.DictReader((path / "ranking.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["ppo.lr"] for row in rows] == ["0.002", "0.001", "0.003"]
    assert float(rows[0]["return_iqm"]) == -3.0
    lines = (path / "ranking.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "| rank | ppo.lr | IQM | 95% interval | mean | seeds | steps |"
    assert lines[2].startswith("| 1 | 0.002 | -3.00 | ")
    assert lines[4].endswith("| 3 (1 failed) | 12,800 |")


def test_every_member_has_its_line(finished):
    path, made, _ = finished
    lines = read_lines(path / "members.jsonl")
    assert [line["index"] for line in lines] == list(range(12))
    assert lines[4] == {
        "index": 4,
        "setting": 1,
        "settings": {"ppo.lr": 2e-3},
        "seed": 0,
        "score": -1.0,
        "steps": 4 * STEPS,
        "failed": False,
        "reason": None,
    }
    assert (lines[11]["score"], lines[11]["failed"]) == (None, True)
    assert len(lines) == len(made.members)


def test_the_best_setting_can_be_trained_again(finished):
    path, made, _ = finished
    best = path / "best.yaml"
    assert build(read_preset(best)) == made.members[4].config
    assert parse([str(best), "--seed", "5"]).ppo.lr == 2e-3
    assert best.read_text(encoding="utf-8").startswith(
        "# The best of the sweep: ppo.lr=0.002. IQM of greedy"
    )
    assert not {"run_dir", "resume"} & set(read_preset(best))


def test_the_table_shows_the_first_ten(tmp_path):
    made = planned(base=BUDGET, grid={"clip_eps": [i / 100 for i in range(1, 13)]})
    write_sweep(tmp_path, made, [[-1.0, float(i)] for i in range(12)])
    console = Console(width=120, record=True, file=io.StringIO())
    show(write_results(tmp_path, made), console)
    text = console.export_text()
    assert "the best 10 of 12 settings" in text
    assert "0.12" in text
    assert "0.03" in text
    assert "0.02" not in text


def test_one_seed_is_ranked_by_its_mean_and_has_no_interval(tmp_path):
    made = planned(base=BUDGET, grid={"lr": [1e-3, 2e-3]})
    write_sweep(tmp_path, made, [[-9, -7], [-9, -8]])
    first = write_results(tmp_path, made).settings[0]
    assert (first.setting, first.iqm, first.mean) == (0, -7, -7)
    assert math.isnan(first.low)
    assert "| -7.00 | – | -7.00 |" in (tmp_path / "ranking.md").read_text(encoding="utf-8")


def test_a_confirmation_is_told_beside_the_search(tmp_path):
    """Three fresh seeds of the second setting: −6, −8 and −10; t(2) = 4.30265, s = 2."""
    made = planned(base=BUDGET, grid={"lr": [1e-3, 2e-3]}, seeds=2)
    write_sweep(tmp_path, made, [[-9, -5], [-9, -7], [-9, -1], [-9, -3]])
    where = tmp_path / "confirmation"
    where.mkdir()
    (where / "chosen.json").write_text('{"setting": 1, "seeds": [2, 3, 4]}', encoding="utf-8")
    write_member(where, 0, 1, [-6.0], name="seed_2")
    write_member(where, 0, 1, [-8.0], name="seed_3")
    write_member(where, 0, 1, [-10.0], name="seed_4")
    assert write_results(tmp_path, made).confirmed is None  # it has not finished
    (where / "finished.json").write_text("{}", encoding="utf-8")
    ranking = write_results(tmp_path, made)
    assert (ranking.best.iqm, ranking.confirmed.iqm, ranking.confirmed.seeds) == (-2, -8, 3)
    half = 4.30265 * 2 / math.sqrt(3)
    assert ranking.confirmed.low == pytest.approx(-8 - half, rel=1e-5)
    found = "ppo.lr=0.002 with fresh seeds: IQM -8.00 (-12.97 … -3.03), seeds: 3; in the search -2"
    for name in ("ranking.md", "best.yaml"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert found in text
        assert "selected as the best of 2 settings by these figures, so that its own" in text
    told = json.loads((tmp_path / "ranking.json").read_text(encoding="utf-8"))
    rows = {(row["case"], row["metric"]): row["value"] for row in told["rows"]}
    assert (rows["setting/1", "return_iqm"], rows["setting/1", "confirmed_return_iqm"]) == (-2, -8)
    assert told["confirmation"]["seeds"] == 3
    rows = csv.DictReader((tmp_path / "ranking.csv").read_text(encoding="utf-8").splitlines())
    assert [row["confirmed_return_iqm"] for row in rows] == ["-8.0", ""]


def test_a_member_that_failed_after_its_last_evaluation_is_ranked_last(tmp_path):
    made = planned(base=BUDGET, grid={"lr": [1e-3, 2e-3]})
    write_sweep(tmp_path, made, [[-9], [-8]])
    summary = '{"failed": "update 2: losses/value_loss is nan"}'
    (tmp_path / "member_001" / "summary.json").write_text(summary, encoding="utf-8")
    ranking = write_results(tmp_path, made)
    assert [one.setting for one in ranking.settings] == [0, 1]
    assert ranking.settings[1].reasons == ("update 2: losses/value_loss is nan",)


def test_who_was_stopped_early_is_below_who_went_on(tmp_path):
    """Two seeds each. Of setting 0 one seed went on; setting 1 was stopped with better returns."""
    made = planned(base=BUDGET, grid={"lr": [1e-3, 2e-3, 3e-3]}, seeds=2)
    returns = [[-9, -8, -7, -6, -5], [-9, -8, -7], [0, 0, 0], [0, 0, 0], [-9, -9], [-9, -9]]
    write_sweep(tmp_path, made, returns)
    ranking = write_results(tmp_path, made)
    assert [one.setting for one in ranking.settings] == [0, 1, 2]
    first, second, third = ranking.settings
    assert (first.seeds, first.mean, first.steps) == (1, -5, 4 * STEPS)
    assert (second.steps, third.steps) == (2 * STEPS, STEPS)


def test_budgets_that_differ_are_no_stopping(tmp_path):
    """Setting 0 had twice the steps of setting 1, and both used up what they had."""
    made = planned(base={"algorithm": "ippo"}, grid={"total_updates": [4, 2]})
    write_sweep(tmp_path, made, [[-9, -9, -9, -9, -9], [-9, -9, -1]])
    assert [one.setting for one in write_results(tmp_path, made).settings] == [1, 0]


def test_failures_are_last_and_equals_in_order(tmp_path):
    made = planned(base=BUDGET, grid={"lr": [1e-3, 2e-3, 3e-3, 4e-3]})
    write_sweep(tmp_path, made, [[-9, None], [], [-9, -5], [-9, -5]])
    ranking = write_results(tmp_path, made)
    assert [one.setting for one in ranking.settings] == [2, 3, 0, 1]
    assert math.isnan(ranking.settings[2].iqm)
    assert "| 3 | 0.001 | failed |" in (tmp_path / "ranking.md").read_text(encoding="utf-8")
    rows = json.loads((tmp_path / "ranking.json").read_text(encoding="utf-8"))["rows"]
    assert [r["metric"] for r in rows if r["case"] == "setting/0"] == ["steps", "rank"]


def test_a_setting_that_failed_is_last_with_what_broke(tmp_path):
    """NaN logits choose action 0, so that its returns look finite, and here even best."""
    made = planned(base=BUDGET, grid={"lr": [1e-3, 1e30]}, seeds=2)
    write_sweep(tmp_path, made, [[-9, -8], [-9, -7], [-1, -1], [-1, -1]])
    what = "update 2: losses/value_loss is nan"
    for member in (2, 3):
        file = tmp_path / member_name(member, 4) / "evals.jsonl"
        lines = [line | {"failed": what} for line in read_lines(file)]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    ranking = write_results(tmp_path, made)
    assert [one.setting for one in ranking.settings] == [0, 1]
    assert ranking.settings[1].failed == 2
    assert read_preset(tmp_path / "best.yaml")["ppo"]["lr"] == 1e-3
    lines = read_lines(tmp_path / "members.jsonl")
    assert [(line["failed"], line["reason"]) for line in lines] == 2 * [(False, None)] + 2 * [
        (True, what)
    ]
    assert f"2 failed at {what}" in (tmp_path / "ranking.md").read_text(encoding="utf-8")
    settings = json.loads((tmp_path / "ranking.json").read_text(encoding="utf-8"))["settings"]
    assert settings[1]["reasons"] == [what, what]


def test_a_population_is_shown_with_the_schedule_that_each_member_had(tmp_path):
    """Member 2 copies member 1 at update 3, and member 0 copies member 2 at update 6."""
    made = planned(base=BUDGET, grid={"lr": [1e-3, 2e-3, 4e-3, 8e-3]}, pbt=True)
    write_sweep(tmp_path, made, [[-9, -1], [-9, -4], [-9, -3], [-9, -2]])
    (tmp_path / "group_0").mkdir()
    copies = [
        {"update": 3, "member": 2, "copies": 1, "hyper": {"lr": 2.5e-3}},
        {"update": 6, "member": 0, "copies": 2, "hyper": {"lr": 2e-3}},
    ]
    lines = "".join(json.dumps(line) + "\n" for line in copies)
    (tmp_path / "group_0" / "pbt.jsonl").write_text(lines, encoding="utf-8")
    write_results(tmp_path, made)
    rows = (tmp_path / "ranking.md").read_text(encoding="utf-8").splitlines()[2:6]
    shown = [row.split(" | ")[1] for row in rows]
    assert shown == ["0.002 → 0.0025 → 0.002", "0.008", "0.002 → 0.0025", "0.002"]
    first, second, *_ = read_lines(tmp_path / "members.jsonl")
    assert first["schedule"] == [
        {"update": 0, "ppo.lr": 2e-3},
        {"update": 3, "ppo.lr": 2.5e-3},
        {"update": 6, "ppo.lr": 2e-3},
    ]
    assert "schedule" not in second


def test_a_sweep_that_failed_as_a_whole_has_no_best(tmp_path):
    made = planned(base=BUDGET, seeds=2)
    (tmp_path / "best.yaml").write_text("seed: 1", encoding="utf-8")
    write_member(tmp_path, 0, 2, [None])
    ranking = write_results(tmp_path, made)  # of the other there is not even a directory
    assert ranking.best is None
    assert not (tmp_path / "best.yaml").exists()
    assert [line["failed"] for line in read_lines(tmp_path / "members.jsonl")] == [True, True]


def test_settings_of_a_contest_are_not_ranked(tmp_path):
    made = planned(base=BUDGET | {"env": "mpe/simple_tag"}, grid={"lr": [1e-3, 2e-3]})
    for member in made.members:
        folder = tmp_path / member_name(member.index, 2)
        folder.mkdir()
        line = {"update": 4, "steps": 9, "seconds": 1.0, "teams": ["prey", "predators"]}
        line |= {"eval/return_mean/prey": 1.0, "eval/return_mean/predators": -1.0}
        (folder / "evals.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    ranking = write_results(tmp_path, made)
    assert ranking.best is None
    assert [one.failed for one in ranking.settings] == [0, 0]
    text = (tmp_path / "ranking.md").read_text(encoding="utf-8")
    assert "| 0.001 | no score |" in text
    assert "no return says which setting is better" in text


def test_a_torn_line_is_not_read(tmp_path):
    made = planned(base=BUDGET, seeds=2)
    write_sweep(tmp_path, made, [[-9, -5], [-9, -7]])
    with (tmp_path / "member_000" / "evals.jsonl").open("a") as file:
        file.write('{"update": 2, "eval/return_me')
    assert write_results(tmp_path, made).settings[0].mean == -6


def test_names_of_members_sort_as_they_do():
    assert member_name(7, 10) == "member_007"
    assert member_name(999, 1000) == "member_999"
    assert member_name(7, 1001) == "member_0007"
