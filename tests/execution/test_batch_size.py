"""How many members share a program."""

from jmarl.execution import batch_size
from jmarl.execution.batch_size import fitting, free_bytes, largest_divisor, members_per_batch


def test_batches_are_of_equal_size():
    assert [largest_divisor(12, limit) for limit in (1, 5, 6, 11, 12, 99)] == [1, 4, 6, 6, 12, 12]
    assert largest_divisor(7, 6) == 1


def test_on_a_cpu_large_members_train_one_after_the_other():
    assert members_per_batch(16, num_envs=100_000) == 1
    assert members_per_batch(1, num_envs=1) == 1


def test_of_small_members_some_share_a_program_and_every_core_has_a_batch(monkeypatch):
    monkeypatch.setattr(batch_size, "cores", lambda: 2)
    assert members_per_batch(64, num_envs=4) == 4
    assert members_per_batch(6, num_envs=4) == 3


def test_a_batch_that_does_not_fit_is_made_smaller():
    assert fitting(members=16, per_batch=16, batch_bytes=100, limit=100) == 16
    assert fitting(members=16, per_batch=16, batch_bytes=100, limit=60) == 8  # 9.6 would fit
    assert fitting(members=16, per_batch=16, batch_bytes=100, limit=1) == 1


def test_free_memory_is_less_than_all_memory():
    import os

    everything = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < free_bytes() < everything
