"""Halving and exchange, applied to a crew that only notes what it is told."""

import json

import numpy as np
import pytest

from jmarl.learning.ppo_loss import HyperParams
from jmarl.sweeps.schedulers import Halving, Pbt


class Noted:
    """A crew of those in `alive`; hyperparameters are alike but for their rates."""

    def __init__(self, alive, lr):
        alike = {name: np.full(len(lr), 0.5) for name in HyperParams._fields}
        self.active, self.hyper = np.array(alive), HyperParams(**alike | {"lr": np.array(lr)})
        self.kept, self.source = None, None

    def keep(self, members):
        self.kept = list(members)

    def copy(self, source):
        self.source = list(source)


def test_rungs_are_taken_in_turn():
    halving = Halving((2, 4), factor=2, settings=(0,))
    assert [halving.next(done) for done in range(5)] == [2, 2, 4, 4, None]


def test_those_that_go_on_are_members_not_places():
    """Two settings are left of four; the mean of the second, 4, is below that of the last, 5."""
    population = Noted([2, 3, 6, 7], np.ones(8))
    halving = Halving((2,), factor=2, settings=(0, 0, 1, 1, 2, 2, 3, 3))
    halving.apply(population, np.array([9.0, -1.0, 4.0, 6.0]), 2)
    assert population.kept == [6, 7]


@pytest.fixture
def pbt(tmp_path):
    return Pbt(3, {"lr": "ppo.lr"}, seed=0, fraction=0.25, factor=2.0, lines=tmp_path / "pbt.jsonl")


def test_exchanges_come_at_multiples(pbt):
    assert [pbt.next(done) for done in (0, 1, 2, 3, 4)] == [3, 3, 3, 6, 6]


def test_the_worst_takes_over_what_the_best_has_learned_and_changes_its_rate(pbt):
    """Member 2 scores worst, member 1 best."""
    population = Noted(range(4), [1.0, 4.0, 16.0, 64.0])
    assert pbt.apply(population, np.array([0.0, 9.0, -5.0, 3.0]), 3) == [2]
    assert population.source == [0, 1, 1, 3]
    rates = population.hyper.lr.tolist()
    assert rates in ([1, 4, 8, 64], [1, 4, 2, 64])
    expected = {"update": 3, "member": 2, "copies": 1, "hyper": {"lr": rates[2]}}
    assert told(pbt) == [expected]
    assert population.hyper.gamma.tolist() == [0.5] * 4


def test_an_exchange_that_is_made_again_is_told_once(pbt):
    """A sweep that was killed goes on from before it, and forgets what came after."""
    for update in (3, 6, 3):
        population = Noted(range(4), [1.0, 4.0, 16.0, 64.0])
        pbt.apply(population, np.array([0.0, 9.0, -5.0, 3.0]), update)
    assert [line["update"] for line in told(pbt)] == [3]


def told(pbt):
    return [json.loads(line) for line in pbt.lines.read_text(encoding="utf-8").splitlines()]
