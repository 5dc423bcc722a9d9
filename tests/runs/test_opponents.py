"""Teams that play against each other: every figure of a run is one team's."""

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from jmarl.commands.train import _conclude
from jmarl.runs.single import run
from tests.support.tensorboard_files import events
from tests.support.tiny_runs import configured, told

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unwatched", "cache")]
TEAMS, SEEDS = ("adversary", "good"), ("seed_0", "seed_1")
NUMBER = r"-?\d+\.\d"


@pytest.fixture(scope="module")
def group(tmp_path_factory, unwatched, cache):
    """Two seeds of predators and prey. All that the run says on the way and at the end."""
    said, path = io.StringIO(), tmp_path_factory.mktemp("tag") / "run"
    chosen = {"env": "mpe/simple_tag", "seeds": 2, "members_per_batch": 2, "total_updates": 2}
    config = configured(path, **chosen, eval_every=1, quiet=False, tensorboard=True)
    console = Console(file=said, width=300)
    outcome = run(config, console).outcome
    _conclude(config, outcome, path, console)
    return path, outcome, said.getvalue()


def names_of_returns(value):
    if isinstance(value, dict):
        for name, part in value.items():
            yield from [name] if "return" in name else []
            yield from names_of_returns(part)


def test_every_return_on_disk_is_of_a_team_or_an_agent(group):
    path, *_ = group
    owners = {*TEAMS, "adversary_0", "adversary_1", "adversary_2", "agent_0"}
    for own in (path, *(path / seed for seed in SEEDS)):
        lines = told(own, "evals.jsonl")
        assert [line["teams"] for line in lines] == [list(TEAMS)] * len(lines)
        summary = json.loads((own / "summary.json").read_text(encoding="utf-8"))
        for entry in (*lines, *told(own, "metrics.jsonl"), summary):
            names = [name for name in names_of_returns(entry) if name != "return"]
            assert names
            assert {name.rpartition("/")[2] for name in names} <= owners, names


def test_a_team_has_the_sum_over_its_agents(group):
    path, *_ = group
    for line in told(path / "seed_1", "evals.jsonl")[:-1]:
        hunters = sum(line[f"eval/return_mean/adversary_{i}"] for i in range(3))
        np.testing.assert_allclose(line["eval/return_mean/adversary"], hunters, rtol=1e-5)
        assert line["eval/return_mean/good"] == line["eval/return_mean/agent_0"]
        low, high = (line[f"eval/return_{side}/good"] for side in ("min", "max"))
        assert low <= line["eval/return_iqm/good"] <= high


def test_seeds_are_summarised_by_team(group):
    path, *_ = group
    lasts = [told(path / seed, "evals.jsonl")[-2] for seed in SEEDS]
    overall = told(path, "evals.jsonl")[-2]
    summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    for team in TEAMS:
        mean = np.mean([line[f"eval/return_mean/{team}"] for line in lasts])
        for found in (
            overall[f"eval/return_mean/{team}"],
            overall[f"members/return_iqm/{team}"],
            summary["evaluation"][f"return_mean/{team}"],
        ):
            np.testing.assert_allclose(found, mean)


def test_the_screen_and_the_last_words_name_the_team(group):
    path, _, said = group
    begun, ended = told(path, "evals.jsonl")[0], told(path, "evals.jsonl")[-2]
    for team in TEAMS:
        first, last = (line[f"eval/return_mean/{team}"] for line in (begun, ended))
        assert f"{team} {first:.1f} at 0 steps, {last:.1f} at 40" in said
        assert re.search(rf"update \d/2 .*{team} return {NUMBER}  {team} IQM {NUMBER}", said)
        assert re.search(rf"best parameters.*{team} {NUMBER} on average, IQM {NUMBER}", said)
    assert not re.search(
        rf"(?<!adversary )(?<!good )(return|IQM|best) {NUMBER}", said.replace("average, IQM", "")
    )


def test_a_seed_has_marl_evals_file_and_curves_of_its_own(group):
    path, *_ = group
    for number, seed in enumerate(SEEDS):
        tree = json.loads((path / seed / "marl_eval.json").read_text(encoding="utf-8"))
        assert set(tree["mpe"]) == {"simple_tag_adversary", "simple_tag_good"}
        steps = tree["mpe"]["simple_tag_good"]["ippo"][f"seed_{number}"]
        lines = told(path / seed, "evals.jsonl")
        means = [steps[f"step_{i}"]["mean_episode_return"] for i in range(3)]
        assert means == [[line["eval/return_mean/good"]] for line in lines[:-1]]
        found = [e for e in events(path / seed / "tensorboard") if e.summary.value]
        returns = {
            e.step: v.simple_value
            for e in found
            for v in e.summary.value
            if v.tag == "eval/return_mean/good"
        }
        expected = {line["steps"]: line["eval/return_mean/good"] for line in lines[:-1]}
        assert returns == pytest.approx(expected, rel=1e-6)
    whole = json.loads((path / "marl_eval.json").read_text(encoding="utf-8"))
    assert set(whole["mpe"]["simple_tag_good"]["ippo"]) == set(SEEDS)
