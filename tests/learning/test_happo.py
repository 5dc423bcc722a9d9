"""HAPPO beside MAPPO. `tests/parity/test_happo_parity.py` compares its updates with torch."""

import jax
import numpy as np
import pytest

from benchmarks import matrix
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.errors import ConfigError

LEARNED = {"epochs": 2, "num_minibatches": 2, "shuffle": "none", "ratio": "joint", "lr": 0.01}
ALONE = matrix.TINY | {"env": "mpe/simple", "actions": "continuous", "total_updates": 2}


def made(algorithm, **ppo):
    return make_trainer(build(ALONE | {"algorithm": algorithm, "ppo": LEARNED | ppo}))


def test_with_one_agent_it_is_mappo(x64):
    """Whose actor and critic are clipped apart. Two updates: the optimisers' states count, too."""
    happo, hyper = made("happo")
    mappo, _ = made("mappo", clip_apart=True)
    state = jax.jit(mappo.init)(jax.random.key(0))
    (policy,) = state.policies
    stacked = policy.params | {"actor": jax.tree.map(lambda x: x[None], policy.params["actor"])}
    learner = happo.learners[0].init(jax.random.key(1), stacked, happo.num_envs)
    own = state.replace(
        policies=(policy._replace(params=stacked),),
        learners=(learner,),
        key=jax.random.clone(state.key),  # both draw the same actions
    )
    steps = jax.jit(mappo.step_alike), jax.jit(happo.step_alike)
    for _ in range(2):
        state, expected = steps[0](state, hyper)
        own, metrics = steps[1](own, hyper)
    params, theirs = own.policies[0].params, state.policies[0].params
    found = params | {"actor": jax.tree.map(lambda x: x[0], params["actor"])}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, theirs)
    assert metrics.keys() == expected.keys()
    means = set(metrics) - {"losses/grad_norm"}  # of all minibatches, or of each network's
    for name in means:
        np.testing.assert_allclose(metrics[name], expected[name], atol=1e-10, err_msg=name)


def test_advantages_of_single_minibatches_are_refused():
    with pytest.raises(ConfigError, match=r"advantage_norm='minibatch' .*'happo'.* 'none'\.$"):
        made("happo", advantage_norm="minibatch")


def test_every_actor_starts_elsewhere():
    world = {"env": "mpe/simple_speaker_listener", "actions": "discrete"}
    trainer, _ = make_trainer(build(ALONE | world | {"algorithm": "happo"}))
    params = jax.jit(trainer.players[0].policy.init)(jax.random.key(0))
    first, second = params["actor"]["out"]["kernel"]
    assert np.abs(first - second).max() > 1e-3
    assert params["critic"]["out"]["kernel"].ndim == 2  # one for both
