"""What does not fit is refused from shapes alone."""

import re
import time

import jax
import pytest

from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.errors import ConfigError
from jmarl.execution import memory
from jmarl.execution.memory import check_fits, size
from jmarl.execution.population import make_population


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"num_envs": 10**9}, ["800 GB of memory", "num_envs=1000000000"]),
        ({"num_envs": 10**9, "total_updates": 1}, ["TB for worlds", "num_envs=1000000000"]),
        (
            {"algorithm": "mappo", "net": {"hidden": [10**6] * 2}},
            ["40 TB", "net.hidden=(1000000, 1000000)"],
        ),
        ({"net": {"n_embd": 10**6}}, ["TB for networks", "net.n_embd=1000000"]),
        ({"env_options": {"num_agents": 10**6}}, ["TB for worlds", "num_agents=1000000"]),
        ({"env_options": {"num_landmarks": 10**6}}, ["GB for worlds", "num_landmarks=1000000"]),
        ({"rollout_length": 10**8, "total_updates": 1}, ["TB for worlds", "rollout_length="]),
        ({"eval_episodes": 10**9}, ["GB for worlds", "eval_episodes=1000000000"]),
        ({"seeds": 10**9}, ["TB of memory", "seeds=1000000000"]),
    ],
)
def test_what_cannot_fit_is_refused_with_what_it_takes_and_what_there_is(values, words):
    began = time.process_time()
    with pytest.raises(ConfigError) as refused:
        make_population(build(values))
    assert time.process_time() - began < 10  # it is never begun
    said = str(refused.value)
    assert re.search(r"only [\d.]+ [GM]B are free", said)
    for word in words:
        assert word in said


def test_what_fits_is_not_refused(monkeypatch):
    """The state alone is the least; with the whole sum it just fits."""
    config = build({"algorithm": "ippo", "net": {"hidden": [8]}, "num_envs": 8})
    trainer, _ = make_trainer(config)
    state = jax.jit(trainer.init)(jax.random.key(0))
    arrays = [
        jax.random.key_data(x) if x.dtype == state.key.dtype else x for x in jax.tree.leaves(state)
    ]
    held = sum(array.nbytes for array in arrays)
    assert size(trainer.shapes) == held
    monkeypatch.setattr(memory, "free_memory", lambda: held)
    with pytest.raises(ConfigError, match="at least"):
        check_fits(config, trainer, 1)
    monkeypatch.setattr(memory, "free_memory", lambda: 200 * held)
    check_fits(config, trainer, 1)
    with pytest.raises(ConfigError, match="400 members"):
        check_fits(config, trainer, 400)
