"""Checkpoints: whole states come back bit for bit, damaged ones are noticed."""

import gc
import shutil
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.errors import ConfigError, RunError
from jmarl.runs import orbax_side_effects
from jmarl.runs.checkpoint import Checkpoints, named_arrays
from tests.support.full_disk import full_disk


def state_of(value):
    """Of many kinds: nested, typed, empty, random keys."""
    return {
        "params": ({"kernel": jnp.full((40, 30), value), "bias": jnp.arange(3, dtype=jnp.int32)},),
        "key": jax.random.key(int(value)),
        "nothing": jnp.zeros((0, 2)),
        "flag": jnp.asarray(True),
    }


def same(a, b):
    a, b = named_arrays(a), named_arrays(b)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
        assert a[name].dtype == b[name].dtype


@pytest.fixture
def saved(tmp_path):
    """Updates 1 to 5, the second the best; kept are the best and the latest two."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep_latest=2)
    for update, score in enumerate((0.0, 9.0, 1.0, 2.0, 3.0), start=1):
        checkpoints.save(update, state_of(float(update)), score, {"seconds": update / 2})
    checkpoints.wait()
    yield checkpoints
    checkpoints.close()


def test_the_latest_and_the_best_are_kept_and_come_back_whole(saved):
    assert saved.updates() == [2, 4, 5]
    like = jax.eval_shape(lambda: state_of(0.0))
    latest, best = saved.latest(like), saved.best(like)
    assert (latest.update, best.update) == (5, 2)
    assert (latest.about["seconds"], best.about["score"]) == (2.5, 9.0)
    same(latest.state, state_of(5.0))
    same(best.state, state_of(2.0))
    assert latest.state["nothing"].shape == (0, 2)
    reader = Checkpoints(saved.directory, read_only=True)
    same(reader.latest(like).state, state_of(5.0))
    reader.close()


def damage(path, how):
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :])


@pytest.mark.parametrize("how", ["cut", "flip", "gone"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(saved, how, tmp_path, capfd):
    """Every file in turn. Either it did not matter, or the damage is noticed and told."""
    like = jax.eval_shape(lambda: state_of(0.0))
    noticed = 0
    newest = saved.directory / "update_5"
    for number, file in enumerate(sorted(newest.rglob("*"))):
        if not file.is_file() or not file.stat().st_size:
            continue
        copy = tmp_path / f"copy_{number}"
        shutil.copytree(saved.directory, copy)
        damage(copy / "update_5" / file.relative_to(newest), how)
        reader = Checkpoints(copy, read_only=True)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = reader.latest(like)
        reader.close()
        assert (copy / "update_5").is_dir()  # a reader changes nothing
        same(found.state, state_of(float(found.update)))
        if found.update != 5:
            assert found.update == 4
            assert any("update 5 is damaged" in str(warning.message) for warning in told)
            noticed += 1
    assert noticed >= 2  # the arrays and what is told about them
    gc.collect()  # coroutines that nobody awaited would show up now
    assert "Traceback" not in capfd.readouterr().err


def test_arrays_of_another_checkpoint_are_noticed(saved):
    """Every file is whole and fits; only the digest tells."""
    newest = saved.directory / "update_5" / "state"
    shutil.rmtree(newest)
    shutil.copytree(saved.directory / "update_4" / "state", newest)
    like = jax.eval_shape(lambda: state_of(0.0))
    with pytest.warns(UserWarning, match="update 5 is damaged .its bytes are not those"):
        assert saved.latest(like).update == 4
    assert not newest.exists()  # out of the way of the next one
    assert (saved.directory / "damaged_5_0").is_dir()


def test_what_a_killed_run_left_is_pruned_but_for_the_best(tmp_path):
    killed = Checkpoints(tmp_path, keep_latest=9)
    for update, score in enumerate((0.0, 9.0, 1.0, 2.0, 3.0), start=1):
        killed.save(update, {"x": jnp.ones(3)}, score, {})
    killed.close()
    again = Checkpoints(tmp_path, keep_latest=2)
    assert again.updates() == [1, 2, 3, 4, 5]
    again.prune()
    assert again.updates() == [2, 4, 5]
    again.close()


def test_without_a_whole_one_it_is_said_so(saved, tmp_path):
    like = jax.eval_shape(lambda: state_of(0.0))
    for file in saved.directory.rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    reader = Checkpoints(saved.directory, read_only=True)
    with pytest.raises(ConfigError, match="no checkpoint that can be read"), pytest.warns():
        reader.latest(like)


def test_a_state_of_other_shapes_is_refused_by_name(saved):
    other = jax.eval_shape(lambda: state_of(0.0))
    other["params"][0]["kernel"] = jax.ShapeDtypeStruct((40, 31), jnp.float32)
    with pytest.raises(ConfigError, match=r"params\.0\.kernel is \(40, 30\), not \(40, 31\)"):
        saved.latest(other)


@pytest.mark.long
def test_saving_leaves_no_objects_behind(tmp_path):
    """Of long runs there are tens of thousands of checkpoints."""
    checkpoints, objects = Checkpoints(tmp_path / "checkpoints"), []
    for update in range(12):
        checkpoints.save(update, state_of(1.0), 0.0, {})
        if update in (5, 11):
            checkpoints.wait()
            gc.collect()
            objects.append(len(gc.get_objects()))
    checkpoints.close()
    assert objects[1] - objects[0] < 6  # not one a save


# When one of Orbax's writes fails, it closes its event loop while the others still run.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine")
def test_a_full_disk_costs_no_earlier_checkpoint(saved, capfd, caplog):
    with full_disk():
        saved.save(6, state_of(6.0), 4.0, {})
        with pytest.raises(
            RunError, match=r"could not be written.*The latest on disk is of update 5\.$"
        ) as told:
            saved.wait()
    assert len(str(told.value)) < 400
    assert not caplog.records  # Orbax would tell of it with tracebacks
    reader = Checkpoints(saved.directory, read_only=True)
    like = jax.eval_shape(lambda: state_of(0.0))
    assert reader.latest(like).update == 5
    same(reader.latest(like).state, state_of(5.0))
    reader.close()
    gc.collect()  # here rather than during another test
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine")
def test_writes_that_end_after_one_has_failed_print_no_traceback():
    """Those of tensorstore's threads; `benchmarks.faults` sees them on disks of 16 kB."""
    told = []
    for words in ("Event loop is closed", "another fault"):
        raised = SimpleNamespace(exc_value=RuntimeError(words))
        orbax_side_effects._tell_unless_late(told.append, raised)
    assert [str(raised.exc_value) for raised in told] == ["another fault"]


def test_a_full_disk_without_an_earlier_checkpoint_promises_none(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    with full_disk():
        checkpoints.save(1, state_of(1.0), 0.0, {})
        with pytest.raises(RunError, match=r"could not be written.*There is no earlier one\.$"):
            checkpoints.wait()
    gc.collect()
