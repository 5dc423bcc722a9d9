"""A step whose queue is bounded."""

import jax
import jax.numpy as jnp

from jmarl.execution.in_flight import LIMIT, Bounded


def test_a_few_updates_are_queued_and_no_more():
    """Only the oldest is waited for, when there are more than so many."""
    waited = []

    class Metric(float):
        def block_until_ready(self):
            waited.append(float(self))
            return self

    step = Bounded(lambda state, _: (state + 1, {"loss": Metric(state)}))
    state = 0
    for _ in range(LIMIT + 3):
        state, metrics = step(state, None)
    assert state == LIMIT + 3
    assert metrics == {"loss": LIMIT + 2}
    assert waited == [0, 1, 2]


def test_a_bounded_step_computes_what_the_step_does():
    step = jax.jit(lambda state, by: (state + by, {"sum": state.sum()}))
    state = jnp.zeros(3)
    bounded, one = Bounded(step), jnp.ones(())
    for _ in range(2 * LIMIT):
        state, metrics = bounded(state, one)
    assert state.tolist() == [2 * LIMIT] * 3
    assert metrics["sum"] == 3 * (2 * LIMIT - 1)
