"""MAT's policy with each distribution of continuous actions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jmarl.envs.spaces import Box
from jmarl.policies.base import one_decision
from jmarl.policies.mat import MatPolicy
from jmarl.types import PolicyInput

N, OBS, B = 3, 4, 16
SPACE = Box((-2.0, 0.0), (2.0, 0.5))


def view(dtype):
    """Agent 1 has the first dimension only."""
    rng = np.random.default_rng(0)
    mask = np.broadcast_to(np.array([[1, 1], [1, 0], [1, 1]], bool), (B, N, 2))
    obs = jnp.asarray(rng.normal(size=(B, N, OBS)), dtype)
    return PolicyInput(obs, jnp.zeros((B, 1)), jnp.asarray(mask))


def random_parameters(policy, dtype):
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    return jax.tree.map(lambda x: rng.normal(0, 0.4, x.shape).astype(dtype), shapes)


def act(policy, params, key, view):
    return policy.act(params, one_decision(policy, jax.random.split(key, B)), (), view)[1]


def again(distribution, variant, order, dtype):
    """A decision, and the same one evaluated in one pass."""
    chosen = {"variant": variant, "agent_order": order, "distribution": distribution}
    policy = MatPolicy((OBS,) * N, SPACE, 8, **chosen)
    params, seen = random_parameters(policy, dtype), view(dtype)
    decision = jax.jit(partial(act, policy))(params, jax.random.key(0), seen)
    given = (params, (), decision.context, seen, decision.action)
    return decision, jax.jit(policy.evaluate)(*given)


@pytest.mark.parametrize("distribution", ["gaussian", "tanh", "beta"])
@pytest.mark.parametrize(("variant", "order"), [("mat", "random"), ("mat_dec", "fixed")])
def test_acting_in_turn_and_evaluating_at_once_agree(distribution, variant, order, x64):
    decision, now = again(distribution, variant, order, np.float64)
    np.testing.assert_allclose(decision.log_prob, now.log_prob, rtol=0, atol=1e-10)
    action = np.asarray(decision.action)
    assert (action[:, 1, 1] == 0).all()
    assert (now.log_prob[:, 1, 1] == 0).all()
    assert (now.entropy[:, 1, 1] == 0).all()
    inside = ((action >= SPACE.low) & (action <= SPACE.high)).all()
    assert inside == (distribution != "gaussian")


@pytest.mark.parametrize("distribution", ["tanh", "beta"])
def test_the_ratio_is_one_in_single_precision(distribution):
    decision, now = again(distribution, "mat", "fixed", np.float32)
    np.testing.assert_allclose(jnp.exp(now.log_prob - decision.log_prob), 1, rtol=0, atol=1e-4)


@pytest.mark.parametrize("variant", ["mat", "mat_dec", "mat_encoder", "mat_decoder", "mat_gru"])
def test_the_noise_starts_as_asked(variant):
    """The reference's σ = sigmoid(log_std)/2 is of its Gaussian; others start with exp(log_std)."""

    def scale(**options):
        policy = MatPolicy((OBS,) * N, SPACE, 8, variant=variant, **options)
        return jax.jit(lambda key: policy.scale(policy.init(key)))(jax.random.key(0))

    np.testing.assert_allclose(scale(), 0.5 / (1 + np.exp(-1)), rtol=1e-6)
    np.testing.assert_allclose(scale(log_std=-2.0), 0.5 / (1 + np.exp(2)), rtol=1e-6)
    np.testing.assert_allclose(scale(log_std=-2.0, distribution="beta"), np.exp(-2), rtol=1e-6)
