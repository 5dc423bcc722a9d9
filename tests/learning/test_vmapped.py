"""Members of a population are the runs that they would be alone."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import matrix
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.learning.vmapped import VmappedTrainer

M, UPDATES = 3, 3


pytestmark = pytest.mark.usefixtures("unwatched")


@pytest.fixture(scope="module")
def grown(unwatched):
    """Three members of different seeds and learning rates, across a reset of their worlds."""
    chosen = {"algorithm": "ippo", "rollout_length": 10, "total_updates": 9}
    trainer, hyper = make_trainer(build(matrix.TINY | chosen))
    vmapped = VmappedTrainer(trainer)
    keys = jax.random.split(jax.random.key(5), M)
    each = hyper._replace(lr=jnp.array([1e-3, 5e-3, 2e-2]))
    states = jax.jit(vmapped.init)(keys)
    step = jax.jit(vmapped.step_alike)
    for _ in range(UPDATES):
        states, metrics = step(states, each)
    return trainer, hyper, vmapped, states, metrics, each


def test_a_member_equals_the_same_run_alone(grown):
    trainer, hyper, _, states, metrics, each = grown
    alone_step = jax.jit(trainer.step_alike)
    for m, key in enumerate(jax.random.split(jax.random.key(5), M)):
        state = jax.jit(trainer.init)(key)
        for _ in range(UPDATES):
            state, local_sum = alone_step(state, hyper._replace(lr=each.lr[m]))
        for ours, theirs in zip(
            jax.tree.leaves(jax.tree.map(lambda x, m=m: x[m], states.policies)),
            jax.tree.leaves(state.policies),
            strict=True,
        ):
            np.testing.assert_allclose(ours, theirs, atol=2e-5)
        np.testing.assert_allclose(
            metrics["losses/value_loss"][m], local_sum["losses/value_loss"], rtol=1e-3
        )


def draws(jaxpr, around=()):
    """The primitives around every place where random bits are made."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "random_bits":
            yield around
        for inner in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from draws(inner, (*around, name))


def test_worlds_reset_in_one_branch_for_all_members(grown):
    """The counter of steps is shared, so the reset stays a branch that is seldom taken: new worlds
    are drawn there, and no other step of a rollout draws anything."""
    _, _, vmapped, states, _, each = grown
    assert states.env.step.shape == ()
    found = list(draws(jax.make_jaxpr(vmapped.step_alike)(states, each).jaxpr))
    playing = [around for around in found if "scan" in around]
    assert playing
    assert all("cond" in around for around in playing)


def test_no_matrices_are_factored_side_by_side():
    """jaxlib's batched QR can wait forever where two run at once on two cores."""
    config = build(matrix.TINY | {"algorithm": "rippo", "net": {"hidden": [8], "share": "none"}})
    vmapped = VmappedTrainer(make_trainer(config)[0])
    keys = jax.random.split(jax.random.key(0), M)
    text = jax.jit(vmapped.init).lower(keys).as_text()
    factored = re.findall(r"geqrf.*?: \(tensor<([^>]+)>", text)
    assert factored
    assert all(shape.count("x") == 2 for shape in factored)  # rows × columns × type
