"""The train step, lowered for GPUs and TPUs on a machine that has neither."""

import jax
import jax.numpy as jnp
import pytest
from jax import export

from benchmarks import matrix
from jmarl import registry
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build

ALGORITHMS = tuple(registry.ALGORITHMS)
PLATFORMS = ("cuda", "tpu")
WORLDS = {"ppo": {"env": "mpe/simple", "actions": "continuous"}}


def described(tree):
    return [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]


def lowered(algorithm, **net):
    """One program for both; it takes a state and hyperparameters, and gives the next state, typed
    key and all, and metrics."""
    small = matrix.tiny(algorithm)
    chosen = WORLDS.get(algorithm, {}) | {"num_envs": 2, "net": small["net"] | net}
    trainer, hyper = make_trainer(build(small | chosen))
    state, hyper = trainer.shapes, jax.tree.map(jnp.asarray, hyper)
    program = export.export(jax.jit(trainer.step_alike), platforms=PLATFORMS)(state, hyper)
    assert program.platforms == PLATFORMS
    assert described(program.in_avals) == described((state, hyper))
    after, metrics = jax.tree.unflatten(program.out_tree, program.out_avals)
    assert described(after) == described(state)
    assert jnp.issubdtype(after.key.dtype, jax.dtypes.prng_key)
    assert set(described(metrics)) == {((), jnp.dtype("float32"))}
    return program


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_lowers_for_accelerators(algorithm):
    lowered(algorithm)


def test_bfloat16_reaches_accelerators():
    program = lowered("mat", precision="bfloat16").mlir_module()
    products = [line for line in program.splitlines() if "stablehlo.dot_general" in line]
    assert products
    assert all("bf16" in line.split(" : (")[1].split(") ->")[0] for line in products)
