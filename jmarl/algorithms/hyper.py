"""The traced hyperparameters of a run: PPO's, and those that its algorithm has of its own."""

import functools
from collections import namedtuple
from typing import Any

from jmarl.config.option_names import hyperparameters, value_of
from jmarl.config.train_config import Config
from jmarl.learning.ppo_loss import HyperParams


def make_hyper(config: Config) -> HyperParams:
    """`HyperParams` filled in from the options that are marked as traced. If the algorithm has
    traced options of its own, a NamedTuple with `HyperParams`' fields and then theirs."""
    names = hyperparameters(config.algorithm)
    own = tuple(name for name in names if name not in HyperParams._fields)
    kind: Any = _with_own(own) if own else HyperParams
    return kind(**{name: value_of(config, full) for name, full in names.items()})


@functools.cache  # trees of one structure are of one class
def _with_own(own: tuple[str, ...]) -> Any:
    return namedtuple("HyperParams", (*HyperParams._fields, *own))
