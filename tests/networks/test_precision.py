"""Networks that compute in bfloat16, with everything around them in float32."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from benchmarks import matrix
from jmarl import registry
from jmarl.algorithms.build import make_trainer
from jmarl.config.algorithms import TRANSFORMERS, WITH_ATTENTION
from jmarl.config.train_config import build
from jmarl.kernels.matmul import NARROW
from jmarl.networks.layers import LayerNorm, apply
from jmarl.policies.base import one_decision
from jmarl.types import PolicyInput
from tests.learning.test_learning import score, trained

ALGORITHMS = tuple(registry.ALGORITHMS)
ACTIONS = ("discrete", "continuous", "multidiscrete")
ROUNDOFF = 2.0**-8  # bfloat16 has 8 significant bits: next to 1, halfway to a neighbour


def made(algorithm, precision="bfloat16", actions="discrete", **net):
    env = "mpe/simple" if algorithm == "ppo" else "mpe/simple_reference"
    heads = {"n_head": 2} if algorithm in WITH_ATTENTION else {}
    sizes = {"n_embd": 16, **heads} if algorithm in TRANSFORMERS else {"hidden": [16]}
    net = {**sizes, "precision": precision, **net}
    return make_trainer(
        build(matrix.TINY | {"algorithm": algorithm, "env": env, "actions": actions, "net": net})
    )


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def dtypes(step, *primitives):
    """Of what goes into them."""
    chosen = [e for e in step if e.primitive.name in primitives and not turns(e)]
    return {str(x.aval.dtype) for e in chosen for x in e.invars}


def turns(equation):
    """A product with 1, by which a few outputs of a network are laid out the other way."""
    if equation.primitive.name != "dot_general":
        return False
    first, second = (x.aval.shape for x in equation.invars)
    return first[0] == first[-1] == second[-1] < NARROW


@pytest.mark.parametrize(
    ("algorithm", "precision"),
    [*((name, "bfloat16") for name in ALGORITHMS), ("mat", "float32"), ("rmappo", "float32")],
)
def test_products_are_as_asked_and_all_else_is_float32(algorithm, precision):
    """A whole train step, traced: playing, the loss, its gradient, the optimiser. The worlds
    compute no products, so all are the networks'."""
    trainer, hyper = made(algorithm, precision, ACTIONS[ALGORITHMS.index(algorithm) % 3])
    before = trainer.shapes
    program, (after, metrics) = jax.make_jaxpr(trainer.step_alike, return_shape=True)(before, hyper)
    step = list(equations(program.jaxpr))
    assert dtypes(step, "dot_general") == {precision}
    assert dtypes(step, "reduce_sum", "cumsum", "rsqrt", "log") <= {"float32", "int32"}
    assert precision == "bfloat16" or "bf16" not in str(program)
    assert jax.tree.map(lambda x: x.dtype, after) == jax.tree.map(lambda x: x.dtype, before)
    counts = [learner.value_norm.updates for learner in after.learners]
    assert {x.dtype for x in counts} == {jnp.dtype(jnp.int32)}
    for x in jax.tree.leaves(
        (after.policies, [x.value_norm for x in after.learners], after.memory, metrics)
    ):
        assert x.dtype == jnp.float32 or any(x is count for count in counts)
    assert {str(x.dtype) for x in jax.tree.leaves(after.learners)} == {"float32", "int32"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "net"),
    [
        ("mat", {"agent_order": "random"}),
        ("mat_dec", {"share_actor": False}),
        ("rippo", {"share": "none"}),
        ("mappo", {"agent_id": "features", "head_hidden": [8]}),
    ],
)
def test_parameters_kept_apart_and_orders_drawn_compose(algorithm, net):
    trainer, hyper = made(algorithm, **net)
    after, metrics = jax.eval_shape(trainer.step_alike, trainer.shapes, hyper)
    for x in jax.tree.leaves((after.policies, after.memory, metrics)):
        assert x.dtype == jnp.float32


def test_layer_norm_counts_its_statistics_in_float32():
    """256, 258, … 286: all are bfloat16 numbers, but not their mean (271) nor their squares."""
    x = jnp.arange(256.0, 288.0, 2.0)[None]
    params = {"scale": jnp.ones(16), "bias": jnp.zeros(16)}
    normed = apply(LayerNorm(), params, x.astype(jnp.bfloat16))
    exact = (x - 271) / np.sqrt(85)  # var = 4·(16² - 1)/12
    assert normed.dtype == jnp.bfloat16
    np.testing.assert_allclose(normed.astype(jnp.float32), exact, rtol=ROUNDOFF)


def random_parameters(policy, scale=0.5):
    """With logits and values of order 1; as they start, logits are nearly 0."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    return jax.tree.map(lambda x: rng.normal(0, scale, x.shape).astype(np.float32), shapes)


def played(low, high, sees, params, key, worlds=64):
    """Of one decision in bfloat16 on random views: itself, the memory after it, and the action
    evaluated in either precision."""
    obs_key, act_key = jax.random.split(key)
    seen = PolicyInput(
        obs=jax.random.normal(obs_key, (worlds, low.num_agents, sees)),
        state=jnp.zeros((worlds, sees)),
        action_mask=jnp.ones((worlds, low.num_agents, low.space.size), bool),
        episode_start=jnp.zeros((worlds,)),
    )
    start = jax.tree.map(lambda x: x + 0.3, low.memory(worlds))
    noise = one_decision(low, jax.random.split(act_key, worlds))
    memory, decision = low.act(params, noise, start, seen)
    recorded = (decision.context, seen, decision.action)
    sequence = jax.tree.map(lambda x: x[None], recorded)  # of one step
    evaluated = [policy.evaluate(params, start, *sequence) for policy in (low, high)]
    return decision, memory, *jax.tree.map(lambda x: x[0], evaluated)


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "actions", "distribution"),
    [
        ("mat", "discrete", None),
        ("mat_decoder", "continuous", "gaussian"),
        ("rippo", "multidiscrete", None),
        ("mat", "continuous", "tanh"),
        ("rippo", "continuous", "beta"),
    ],
)
def test_decisions_are_nearly_those_of_float32(algorithm, actions, distribution):
    """Logits and values are of order 1 and pass some ten roundings, each of 2⁻⁸ of them at most
    and of either sign: ten such bound every log-probability, entropy and value, two their mean. A
    Gaussian's log-probability multiplies the mean's error by |a - μ|/σ², up to 10 where σ < ½.
    What is evaluated again takes the same roundings, but for the order of sums."""
    trainers = [
        made(algorithm, precision, actions, distribution=distribution)[0]
        for precision in ("bfloat16", "float32")
    ]
    low, high = (trainer.players[0].policy for trainer in trainers)
    play = jax.jit(partial(played, low, high, trainers[0].env.spec.obs_size))
    decision, memory, given, exact = play(random_parameters(low), jax.random.key(0))
    assert np.std(exact.log_prob) > 0.3
    unit = ROUNDOFF * (10 if actions == "continuous" else 1)
    for rounded, true in zip(given, exact, strict=True):
        assert rounded.dtype == true.dtype == jnp.float32
        assert np.abs(rounded - true).mean() < 2 * unit
        assert np.abs(rounded - true).max() < 10 * unit
    assert not (given.log_prob == exact.log_prob).all()
    np.testing.assert_allclose(decision.log_prob, given.log_prob, atol=unit)
    for state in jax.tree.leaves(memory):  # not bfloat16 in disguise
        assert (state != state.astype(jnp.bfloat16).astype(jnp.float32)).any()


def test_a_context_is_learned_in_bfloat16():
    trainer, state = trained("probe/context", precision="bfloat16")
    assert trainer.players[0].policy.actor.precision == "bfloat16"
    np.testing.assert_allclose(score(trainer, state), 1.0, atol=0.01)
