"""History is never erased: what a resume refuses, what it keeps, and what it completes."""

import json
import shutil
import sys
import warnings
from types import SimpleNamespace

import pytest
from rich.console import Console
from tensorboardX.proto.event_pb2 import SessionLog

from jmarl.config.train_config import build
from jmarl.errors import ConfigError
from jmarl.runs.single import resumed_values, run
from tests.support.tensorboard_files import events
from tests.support.tiny_runs import OF_TIME, configured, digest, go, resumed, same_runs, told

pytestmark = pytest.mark.usefixtures("unwatched", "cache")
LINES = ("metrics.jsonl", "evals.jsonl")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    go(configured(path))
    return path


@pytest.fixture(scope="module")
def seeds(tmp_path_factory, unwatched):
    path = tmp_path_factory.mktemp("seeds") / "run"
    go(configured(path, seeds=2, members_per_batch=2))
    return path


@pytest.fixture
def copied(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "x")
    return tmp_path / "x"


def contents(path):
    return {name: (path / name).read_bytes() for name in LINES}


def without_clocks(value):
    if isinstance(value, dict):
        clocks = (*OF_TIME, "elapsed_time")
        return {k: without_clocks(v) for k, v in value.items() if k not in clocks}
    return value


def as_json(path, name):
    return without_clocks(json.loads((path / name).read_text(encoding="utf-8")))


@pytest.mark.long
@pytest.mark.parametrize("which", ["whole", "seeds"])
def test_a_run_without_its_versions_stays_the_same_run(which, request, tmp_path):
    """With another id, it would refuse the checkpoints that it had before."""
    shutil.copytree(request.getfixturevalue(which), tmp_path / "x")
    (tmp_path / "x" / "summary.json").unlink()  # its end is written once more
    before = as_json(tmp_path / "x", "versions.json")["run"]
    (tmp_path / "x" / "versions.json").write_bytes(b"\xff\0")
    resumed(tmp_path / "x")
    assert as_json(tmp_path / "x", "versions.json")["run"] == before


def test_a_run_whose_checkpoints_are_damaged_is_refused_every_time(copied):
    before = contents(copied)
    for file in (copied / "checkpoints").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.warns(UserWarning, match="is damaged"), pytest.raises(ConfigError) as first:
        resumed(copied, total_updates=8)
    with pytest.raises(ConfigError) as second:
        resumed(copied, total_updates=8)
    for refusal in (first, second):
        assert "cannot resume" in str(refusal.value)
        assert "new run in another directory" in str(refusal.value)
    assert contents(copied) == before
    assert (copied / "checkpoints" / "damaged_6_0").is_dir()


def test_a_run_that_has_ended_and_lost_its_checkpoints_is_refused(copied):
    before = contents(copied)
    shutil.rmtree(copied / "checkpoints")
    for _ in range(2):
        with pytest.raises(ConfigError, match="cannot resume"):
            resumed(copied)
    assert contents(copied) == before


def cut(path, updates):
    """As a kill leaves a run that has lost its checkpoints, or never had one."""
    shutil.rmtree(path / "checkpoints")
    (path / "summary.json").unlink()
    for name in LINES:
        lines = (path / name).read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [x for x in lines if json.loads(x)["update"] <= updates and "absolute" not in x]
        (path / name).write_text("".join(kept), encoding="utf-8")


def test_a_run_that_was_killed_and_lost_its_checkpoints_is_refused(copied):
    """Its line of update 5 was written after the second checkpoint began, and so after the first
    was whole. Whoever asks for fewer checkpoints from now on does not change that."""
    cut(copied, 5)
    before = contents(copied)
    for values in ({}, {"checkpoint_every": 100}):
        with pytest.raises(ConfigError, match="none of its checkpoints can be read"):
            resumed(copied, **values)
    assert contents(copied) == before
    assert not (copied / "metrics.dropped.jsonl").exists()


def test_a_run_killed_before_its_first_checkpoint_begins_again_and_keeps_its_lines(copied, whole):
    cut(copied, 4)  # the first may still have been on its way when the second was due
    before = contents(copied)
    with pytest.warns(
        UserWarning, match=r"x' was stopped .* are kept in 'metrics\.dropped\.jsonl'"
    ):
        resumed(copied)
    same_runs(copied, whole)
    for name, lines in before.items():
        assert (copied / name.replace(".jsonl", ".dropped.jsonl")).read_bytes() == lines


def test_lines_after_the_checkpoint_are_kept_beside(copied, whole):
    shutil.rmtree(copied / "checkpoints" / "update_6")
    with (copied / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"update": 7, "st')
    resumed(copied)
    same_runs(copied, whole)
    dropped = (copied / "metrics.dropped.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["update"] for line in dropped[:-1]] == [5, 6]
    assert dropped[-1] == '{"update": 7, "st'
    evaluations = told(copied, "evals.dropped.jsonl")
    assert [(line["update"], "absolute" in line) for line in evaluations] == [(6, False), (6, True)]


# No such line was written by us: wrong bytes, kinds and types, and too little.
DAMAGED = (
    b"""\xff\xfe
[1]
7
null
{"update": "x", "steps": 1, "seconds": 1, "eval/return_mean": 1}
{"update": 6.5, "steps": 1, "seconds": 1, "eval/return_mean": 1}
{"update": true, "steps": 1, "seconds": 1, "eval/return_mean": 1}
{"update": 6, "steps": null, "seconds": 1, "eval/return_mean": 1}
{"update": 6, "steps": -1, "seconds": 1, "eval/return_mean": 1}
{"update": 6, "steps": 1, "seconds": 1, "eval/return_mean": [1]}
{"update": 6, "steps": 1, "seconds": "1", "eval/return_mean": 1}
{"update": 6, "steps": 1, "seconds": 1, "eval/return_mean": 1, "member": "0"}
{"update": 6, "steps": 1, "seconds": 1, "eval/return_mean": 1e999}
{"steps": 1, "seconds": 1, "eval/return_mean": 1}
{"update": 6, "st
"""
    + b"%s%s\n" % (b"[" * 10**5, b"]" * 10**5)
)
COUNT = DAMAGED.count(b"\n")


def test_damaged_lines_do_not_stop_a_resume(copied, whole):
    shutil.rmtree(copied / "checkpoints" / "update_6")
    for name in LINES:
        (copied / name).write_bytes(DAMAGED + (copied / name).read_bytes())
    with warnings.catch_warnings(record=True) as told_of:
        warnings.simplefilter("always")
        resumed(copied)
    assert [str(one.message) for one in told_of] == [
        f"'{copied / name}': {COUNT} damaged lines are left out, and kept in "
        f"'{name.partition('.')[0]}.dropped.jsonl'."
        for name in LINES
    ]
    same_runs(copied, whole)
    assert as_json(copied, "summary.json") == as_json(whole, "summary.json")
    assert (copied / "evals.dropped.jsonl").read_bytes().startswith(DAMAGED)


def test_damaged_lines_are_counted_by_whoever_reads_them(copied, whole):
    for name, few in (("metrics.jsonl", b"7\n"), ("evals.jsonl", b'{"update": 1, "steps": 9}\n')):
        lines = (copied / name).read_bytes()
        (copied / name).write_bytes(few + lines[:-9])  # the end is torn, as by a kill
        with pytest.warns(UserWarning, match=rf"{name}': 1 damaged line is skipped\.$"):
            assert told(copied, name) == told(whole, name)[:-1]
        (copied / name).write_bytes(few + lines[:-1])  # all but its last line break
        with pytest.warns(UserWarning, match="1 damaged"):
            assert told(copied, name) == told(whole, name)


def test_a_member_is_refused_with_the_command_that_resumes_its_group(seeds, tmp_path):
    before = contents(seeds / "seed_0")
    with pytest.raises(ConfigError, match=rf"jmarl\.train --resume {seeds}\.$"):
        resumed(seeds / "seed_0", total_updates=9)
    assert contents(seeds / "seed_0") == before
    shutil.copytree(seeds / "seed_0", tmp_path / "moved" / "seed_0")
    with pytest.raises(ConfigError, match="Its group, which has the checkpoints, is not there"):
        resumed(tmp_path / "moved" / "seed_0", total_updates=9)
    assert contents(tmp_path / "moved" / "seed_0") == before


def kill_before_the_end(path):
    """As a kill between the last checkpoint and the final score leaves a run."""
    for own in (path, *path.glob("seed_*")):
        lines = (own / "evals.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if "absolute" not in json.loads(line)]
        assert len(kept) == len(lines) - 1
        (own / "evals.jsonl").write_text("".join(kept), encoding="utf-8")
        for name in ("summary.json", "marl_eval.json"):
            (own / name).unlink(missing_ok=True)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["whole", "seeds"])
def test_what_a_kill_at_the_end_took_is_completed(kind, request, tmp_path):
    uninterrupted, path = request.getfixturevalue(kind), tmp_path / "x"
    shutil.copytree(uninterrupted, path)
    kill_before_the_end(path)
    drawn = []
    config = build(resumed_values(path))
    run(config, Console(quiet=True), lambda *given: drawn.append(given[2].stopped_by))
    assert drawn == [None]  # the GIF comes too
    assert digest(path, 6) == digest(uninterrupted, 6)
    for own in (path, *(path / each.name for each in uninterrupted.glob("seed_*"))):
        theirs = uninterrupted / own.relative_to(path)
        for name in LINES:
            assert told(own, name) == told(theirs, name)
        assert as_json(own, "summary.json") == as_json(theirs, "summary.json")
    assert as_json(path, "marl_eval.json") == as_json(uninterrupted, "marl_eval.json")
    with pytest.raises(ConfigError, match="done its 6 updates"):
        resumed(path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "name"), [("whole", "marl_eval.json"), ("seeds", "seed_1/marl_eval.json")]
)
def test_a_finished_run_gets_a_lost_file_back(kind, name, request, tmp_path):
    uninterrupted, path = request.getfixturevalue(kind), tmp_path / "x"
    shutil.copytree(uninterrupted, path)
    (path / name).unlink()
    resumed(path)
    assert as_json(path, name) == as_json(uninterrupted, name)
    assert as_json(path, "summary.json") == as_json(uninterrupted, "summary.json")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["whole", "seeds"])
def test_a_resumed_run_ends_with_the_files_of_an_uninterrupted_one(kind, request, tmp_path):
    uninterrupted, path = request.getfixturevalue(kind), tmp_path / "x"
    shutil.copytree(uninterrupted, path)
    shutil.rmtree(path / "checkpoints" / "update_6")
    resumed(path)
    for own in (path, *(path / each.name for each in uninterrupted.glob("seed_*"))):
        theirs = uninterrupted / own.relative_to(path)
        assert as_json(own, "summary.json") == as_json(theirs, "summary.json")
    assert as_json(path, "marl_eval.json") == as_json(uninterrupted, "marl_eval.json")


def test_a_final_score_is_of_the_end_and_not_of_an_earlier_one(copied):
    resumed(copied, total_updates=8)
    lines = told(copied, "evals.jsonl")
    assert [line["update"] for line in lines] == [0, 2, 4, 6, 8, 8]
    assert as_json(copied, "summary.json")["absolute"] == lines[-1]
    (seed,) = as_json(copied, "marl_eval.json")["mpe"]["simple_spread"]["ippo"].values()
    assert set(seed) == {"absolute_metrics", *(f"step_{i}" for i in range(5))}


@pytest.mark.long
def test_curves_have_no_step_twice(tmp_path):
    """TensorBoard hides what came before a start with at least its step."""
    path = tmp_path / "x"
    go(configured(path, tensorboard=True, total_updates=4))
    shutil.rmtree(path / "checkpoints" / "update_4")
    resumed(path)
    found = list(events(path / "tensorboard"))
    starts = [i for i, event in enumerate(found) if event.session_log.status == SessionLog.START]
    assert [found[i].step for i in starts] == [2 * 20 + 1]  # after update 2, of 4 × 5 steps
    assert all(event.step > 40 for event in found[starts[0] :])


@pytest.mark.long
def test_a_resumed_run_goes_on_in_its_own_wandb_run(tmp_path, monkeypatch):
    begun = []

    def init(**given):
        begun.append((given.get("id"), given.get("resume")))
        return SimpleNamespace(log=lambda *_, **__: None, finish=lambda: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    go(configured(tmp_path / "x", wandb=True, total_updates=2))
    resumed(tmp_path / "x", total_updates=4)
    go(configured(tmp_path / "y", wandb=True, total_updates=1))
    first, again, other = begun
    assert first == again
    assert first[0]
    assert first[1] == "allow"
    assert first[0] != other[0]


def test_a_checkpoint_of_another_run_is_refused_by_name(copied, tmp_path):
    go(configured(tmp_path / "other", seed=3))
    shutil.rmtree(copied / "checkpoints" / "update_6")
    shutil.copytree(
        tmp_path / "other" / "checkpoints" / "update_6", copied / "checkpoints/update_6"
    )
    before = contents(copied)
    with pytest.raises(ConfigError, match=r"update_6' belongs to another run .*seed 3"):
        resumed(copied, total_updates=9)
    assert contents(copied) == before


def test_a_checkpoint_under_another_number_is_refused_by_name(copied):
    (copied / "checkpoints" / "update_6").rename(copied / "checkpoints" / "update_7")
    before = contents(copied)
    with pytest.raises(ConfigError, match=r"update_7' was saved after update 6, not 7"):
        resumed(copied, total_updates=9)
    assert contents(copied) == before


@pytest.mark.long
def test_no_more_checkpoints_are_kept_after_resumes(copied):
    """The latest three and the best, however often the run was resumed."""
    for total in (8, 10, 12, 14):
        resumed(copied, total_updates=total)
    kept = sorted(int(p.name.split("_")[1]) for p in (copied / "checkpoints").iterdir())
    assert kept[-3:] == [10, 12, 14]
    assert len(kept) <= 4
