"""A short training of each algorithm as it is shipped, with XLA's optimiser, and without: the same
numbers, but for rounding. `.ci/run` runs it; not part of the suite."""

import os
from functools import partial

import jax
import numpy as np
import pytest

from benchmarks import matrix
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.execution.compiler import fast_options, quick_options

ACTIONS = {  # of every algorithm one kind
    **{"mat": "multidiscrete", "mat_dec": "continuous", "mat_encoder": "discrete"},
    **{"mat_decoder": "continuous", "mat_gru": "discrete", "mappo": "multidiscrete"},
    **{"ippo": "discrete", "rmappo": "continuous", "rippo": "multidiscrete", "ppo": "discrete"},
    **{"happo": "multidiscrete", "rhappo": "continuous"},
}
UPDATES = 3
# a wrong sign or term changes the metrics by more; rounding, over three updates, by less
TOLERANCE = 1e-3


def trained(algorithm, options):
    """Metrics of each update."""
    env = "mpe/simple" if algorithm == "ppo" else "mpe/simple_reference"
    chosen = {"algorithm": algorithm, "env": env, "actions": ACTIONS[algorithm], "num_envs": 64}
    chosen["ppo"] = {"epochs": 2, "num_minibatches": 2}
    trainer, hyper = make_trainer(build(matrix.tiny(algorithm) | chosen))
    compiled = partial(jax.jit, compiler_options=options)
    state, step, metrics = (
        compiled(trainer.init)(jax.random.key(0)),
        compiled(trainer.step_alike),
        [],
    )
    for _ in range(UPDATES):
        state, now = step(state, hyper)
        metrics.append({name: float(value) for name, value in now.items()})
    return metrics


@pytest.mark.skipif(not os.environ.get("JMARL_TEST_OPTIMISED"), reason="of programs as shipped")
@pytest.mark.parametrize("algorithm", ACTIONS)
def test_a_training_is_what_it_is_without_the_optimiser(algorithm):
    shipped, plain = (trained(algorithm, options()) for options in (fast_options, quick_options))
    for ours, theirs in zip(shipped, plain, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            if name == "train/episode_return" and np.isnan(value):
                assert np.isnan(theirs[name])  # no episode has ended
                continue
            assert np.isfinite(value), name
            assert value == pytest.approx(theirs[name], rel=TOLERANCE, abs=TOLERANCE), name
    assert shipped[-1]["losses/total_loss"] != shipped[0]["losses/total_loss"]
