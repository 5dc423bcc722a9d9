"""Directories of runs: locked where that is possible, and none left behind by a refusal."""

import errno
import fcntl
import gc
import os

import pytest

from jmarl.config.train_config import build
from jmarl.errors import ConfigError, RunError
from jmarl.runs import directory as run_dir
from tests.support.full_disk import full_disk
from tests.support.tiny_runs import configured, go


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_told_of(number, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.warns(UserWarning, match=f"no locks .*{os.strerror(number)}.* no other process"),
        run_dir.lock(tmp_path),
    ):
        assert (tmp_path / ".lock").exists()


@pytest.mark.parametrize("name", ["exp[1]", "a*", "why?"])
def test_names_that_are_patterns_are_refused(name, tmp_path):
    """Orbax finds no part of a checkpoint below them, or another run's."""
    given = tmp_path / name / "x"
    with pytest.raises(ConfigError, match=r"a name with \[, \* or \?\.$"):
        run_dir.create(configured(given))
    assert not list(tmp_path.iterdir())
    given.mkdir(parents=True)
    with pytest.raises(ConfigError, match="checkpoints cannot be saved"), run_dir.lock(given):
        pass


def test_a_lock_that_another_has_is_refused(tmp_path):
    with (
        run_dir.lock(tmp_path),
        pytest.raises(ConfigError, match="being written by another process"),
        run_dir.lock(tmp_path),
    ):
        pass


def test_a_directory_that_cannot_be_filled_is_not_left_behind(tmp_path):
    (tmp_path / "a").mkdir()
    with full_disk(), pytest.raises(ConfigError, match=r"cannot be made: .*File too large"):
        run_dir.create(build({"run_dir": tmp_path / "a" / "b" / "c"}))
    assert [path.name for path in tmp_path.rglob("*")] == ["a"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("b/" + "ä" * 128, "a name in it has 256 bytes; here they have 1 to 255"),
        ("/".join(["x" * 250] * 15), "its path has .* bytes; here it has at most 3584"),
        ("b/c\0d", "names have no NUL"),
    ],
)
def test_names_that_no_file_system_takes_are_refused_by_name(name, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        run_dir.create(build({"run_dir": str(tmp_path / name)}))
    assert not list(tmp_path.iterdir())


def test_the_longest_name_is_taken(tmp_path):
    assert run_dir.create(build({"run_dir": tmp_path / ("x" * 255)})).is_dir()


# What was not written is still in buffers, which nobody can close.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_disk_that_is_full_while_training_is_told_of_in_one_sentence(tmp_path, unwatched):
    """Of the directory, and of what is left in it."""
    with (
        full_disk(5000),
        pytest.raises(RunError, match=r"x' cannot be written: .* It has no checkpoint yet\.$"),
    ):
        go(configured(tmp_path / "x", total_updates=100, eval_every=100, compilation_cache=False))
    gc.collect()  # here rather than during another test
