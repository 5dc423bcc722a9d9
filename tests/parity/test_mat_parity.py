"""MAT against torch, with the same weights, observations and recorded actions on both sides."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from jmarl.envs.spaces import Box, Discrete, MultiDiscrete
from jmarl.learning.losses import moments
from jmarl.learning.minibatches import Batch
from jmarl.learning.running_statistics import ValueNorm
from jmarl.learning.update import LearnerState, gradient_step
from jmarl.networks.layers import LayerNorm
from jmarl.policies.base import one_decision, real_features
from jmarl.policies.mat import MatPolicy
from jmarl.references.mat import MAT
from jmarl.types import Evaluation, PolicyInput
from tests.support import torch_core, torch_mat
from tests.support.parts import hyper as hyper_params
from tests.support.parts import objective as make_objective
from tests.support.torch_weights import mat_params, params_of

N, OBS, A, D, B = 3, 7, 5, 16, 12
KINDS = ["Discrete", "Continuous", "masked"]
SIZES = [(1, 1), (2, 2)]  # blocks, heads


VARIANTS = {
    "mat": torch_mat.MultiAgentTransformer,
    "mat_dec": partial(torch_mat.MultiAgentTransformer, dec_actor=True, share_actor=True),
    "mat_dec, unshared": partial(torch_mat.MultiAgentTransformer, dec_actor=True),
    "mat_encoder": torch_mat.MatEncoder,
    "mat_decoder": torch_mat.MatDecoder,
    "mat_gru": torch_mat.MatGru,
}


def models(kind, blocks=1, heads=1, variant="mat", agent_order="fixed"):
    """The same network twice: torch in float64, and jmarl's policy with its parameters."""
    torch.manual_seed(0)
    action_type = "Continuous" if kind == "Continuous" else "Discrete"
    model = VARIANTS[variant](OBS, A, N, blocks, D, heads, action_type).double()
    torch_mat.perturb(model, seed=1)
    space = Box.uniform(-1, 1, A) if kind == "Continuous" else Discrete(A)
    name, _, unshared = variant.partition(", ")
    policy = MatPolicy((OBS,) * N, space, D, heads, blocks, name, not unshared, agent_order)
    return model, policy, mat_params(model, policy)


def test_layer_norm_of_padded_inputs(x64):
    """Each agent's own features as torch normalises them, with gradients; padding becomes 0 and
    has no gradient."""
    rng, sizes = np.random.default_rng(0), (3, OBS, 5)
    x, out = rng.normal(2, 3, (2, B, N, OBS))
    norm = LayerNorm()
    params = {"scale": rng.normal(size=OBS), "bias": rng.normal(size=OBS)}
    params = jax.tree.map(jnp.asarray, params)
    real = real_features(sizes)

    def ours(params, x):
        return (norm.apply({"params": params}, x, real, method="of_real") * out).sum()

    y = norm.apply({"params": params}, jnp.asarray(x), real, method="of_real")
    of_params, of_x = jax.grad(ours, (0, 1))(params, jnp.asarray(x))
    total = 0.0
    scale, bias = (
        torch.tensor(np.asarray(params[k]), requires_grad=True) for k in ("scale", "bias")
    )
    inputs = torch.tensor(x, requires_grad=True)
    for i, size in enumerate(sizes):
        own = torch.nn.functional.layer_norm(
            inputs[:, i, :size], (size,), scale[:size], bias[:size], eps=1e-5
        )
        np.testing.assert_allclose(y[:, i, :size], own.detach(), atol=1e-12)
        np.testing.assert_array_equal(y[:, i, size:], 0.0)
        total = total + (own * torch.tensor(out)[:, i, :size]).sum()
    total.backward()
    np.testing.assert_allclose(of_x, inputs.grad, atol=1e-11)
    np.testing.assert_allclose(of_params["scale"], scale.grad, atol=1e-10)
    np.testing.assert_allclose(of_params["bias"], bias.grad, atol=1e-10)


@pytest.mark.parametrize("order", ["fixed", "random"])
@pytest.mark.parametrize("variant", ["mat", "mat_decoder", "mat_dec, unshared"])
def test_padding_is_inert(variant, order, x64):
    """Whatever stands in it, and in whatever order agents decide."""
    if variant == "mat_dec, unshared" and order == "random":
        pytest.skip("MAT-Dec's agents act at once")
    _, policy, params = models("Discrete", variant=variant, agent_order=order)
    policy = replace(policy, obs_sizes=(3, OBS, 5))
    obs, _, action = data("Discrete")
    context = None
    if order == "random":
        context = jax.vmap(lambda k: jax.random.permutation(k, N))(
            jax.random.split(jax.random.key(0), B)
        )
    evaluate = jax.jit(
        lambda obs: policy.evaluate(params, (), context, PolicyInput(obs, None, None), action)
    )
    padding = np.arange(OBS) >= np.array(policy.obs_sizes)[:, None]
    now, junk = evaluate(jnp.asarray(obs)), evaluate(jnp.asarray(np.where(padding, 7.0, obs)))
    jax.tree.map(np.testing.assert_array_equal, now, junk)
    moved = evaluate(jnp.asarray(obs).at[:, :, 1].add(1.0))
    assert (np.asarray(now.value) != np.asarray(moved.value)).all()


def data(kind, seed=0):
    """Observations, legal actions and recorded actions, as numpy."""
    rng = np.random.default_rng(seed)
    available = np.ones((B, N, A), bool)
    if kind == "masked":
        available = rng.random((B, N, A)) < 0.6
        available[..., 2] = True
    if kind == "Continuous":
        action = rng.normal(size=(B, N, A))
    else:
        scores = rng.random((B, N, A)) * available
        action = scores.argmax(-1)
    return rng.normal(size=(B, N, OBS)), available, action


def to_torch(kind, obs, available, action):
    chosen = torch.tensor(action)
    return (
        torch.as_tensor(obs),
        chosen if kind == "Continuous" else chosen[..., None],
        torch.as_tensor(available.astype(float)),
    )


def seen(obs, available):
    return PolicyInput(jnp.asarray(obs), jnp.zeros((B, 1)), jnp.asarray(available))


def close(ours, theirs, atol=1e-10):
    np.testing.assert_allclose(ours, theirs.detach().numpy(), atol=atol, rtol=atol)


CASES = [(kind, *sizes, "mat") for kind in KINDS for sizes in SIZES]
CASES += [(kind, 2, 2, name) for kind in KINDS[1:] for name in list(VARIANTS)[1:]]


def acted(policy, params, key, view, deterministic=False):
    def act(params, key, view):
        noise = one_decision(policy, jax.random.split(key, B))
        return policy.act(params, noise, (), view, deterministic)

    return jax.jit(act)(params, key, view)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "blocks", "heads", "variant"), CASES)
def test_parallel_and_cached_passes_equal_torch_and_each_other(kind, blocks, heads, variant, x64):
    model, policy, params = models(kind, blocks, heads, variant)
    obs, available, action = data(kind)
    view, evaluate = seen(obs, available), jax.jit(policy.evaluate)

    now = evaluate(params, (), None, view, jnp.asarray(action))
    log_prob, value, entropy = model.evaluate(*to_torch(kind, obs, available, action))
    close(now.log_prob, log_prob)
    close(now.value[..., None], value)
    close(now.entropy, entropy)

    _, decision = acted(policy, params, jax.random.key(0), view)
    assert len(np.unique(np.asarray(decision.action))) > 1
    again = evaluate(params, (), None, view, decision.action)
    np.testing.assert_allclose(decision.log_prob, again.log_prob, atol=1e-12)
    action = np.asarray(decision.action)
    log_prob, value, _ = model.act_with(*to_torch(kind, obs, available, action))
    close(decision.log_prob, log_prob)
    close(decision.value[..., None], value)
    if kind == "masked":
        assert np.take_along_axis(available, action[..., None], -1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_deterministic_acting(kind, x64):
    model, policy, params = models(kind)
    obs, available, action = data(kind)
    _, decision = acted(policy, params, jax.random.key(0), seen(obs, available), True)
    torch_obs, _, legal = to_torch(kind, obs, available, action)
    best = model.greedy(torch_obs, legal)
    close(decision.action, best if kind == "Continuous" else best[..., 0])


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_random_order_of_agents_is_recorded_and_gives_ratio_one(kind, x64):
    """Each row equals torch's network on agents that stand in the order of that row."""
    model, policy, params = models(kind, agent_order="random")
    obs, available, _ = data(kind)
    view = seen(obs, available)
    _, decision = acted(policy, params, jax.random.key(0), view)
    order = np.asarray(decision.context)
    assert len(np.unique(order, axis=0)) > 1
    assert (np.sort(order, axis=-1) == np.arange(N)).all()
    now = jax.jit(policy.evaluate)(params, (), decision.context, view, decision.action)
    np.testing.assert_allclose(decision.log_prob, now.log_prob, atol=1e-12)

    row = np.arange(B)[:, None]
    action = np.asarray(decision.action)
    log_prob, value, entropy = model.evaluate(
        *to_torch(kind, obs[row, order], available[row, order], action[row, order])
    )
    close(now.log_prob[row, order], log_prob)
    close(now.value[row, order][..., None], value)
    close(now.entropy[row, order], entropy)
    close(decision.value[row, order][..., None], value)


def test_values_that_depend_on_actions_are_drawn(x64):
    """mat_decoder, as in the reference: the bootstrap value is that of sampled actions."""
    _, policy, params = models("masked", variant="mat_decoder")
    view = seen(*data("masked")[:2])
    value = jax.jit(policy.value)
    keys, others = (jax.random.split(jax.random.key(i), B) for i in range(2))
    once = value(params, keys, (), view)
    assert once.shape == (B, N)
    np.testing.assert_array_equal(once, value(params, jax.random.clone(keys), (), view))
    other = value(params, others, (), view)
    np.testing.assert_array_equal(once[:, 0], other[:, 0])  # nobody acts before agent 0
    assert (once[:, 1:] != other[:, 1:]).any()


def test_acting_in_single_precision_gives_ratio_one():
    _, policy, params = models("Discrete")
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    obs, available, _ = data("Discrete")
    view = seen(obs.astype(np.float32), available)
    _, decision = acted(policy, params, jax.random.key(0), view)
    again = jax.jit(policy.evaluate)(params, (), None, view, decision.action)
    np.testing.assert_allclose(jnp.exp(again.log_prob - decision.log_prob), 1.0, atol=1e-5)


def test_initial_scales_are_the_references():
    """WᵀW = gain²·I, with gain 0.01 on attention, second layers and outputs, √2 elsewhere."""
    _, policy, _ = models("Discrete")
    leaves = jax.tree_util.tree_leaves_with_path(jax.jit(policy.init)(jax.random.key(0)))
    gains = {
        jax.tree_util.keystr(path): float(jnp.linalg.norm(leaf, ord=2))
        for path, leaf in leaves
        if "kernel" in jax.tree_util.keystr(path)
    }
    for path, gain in gains.items():
        small = "attn" in path or "'out'" in path
        np.testing.assert_allclose(gain, 0.01 if small else 2**0.5, rtol=1e-5, err_msg=path)
    assert len(gains) == 4 + 2 + 1 + 2 + 8 + 2 + 1 + 2


def learning_batch(kind, seed=5):
    """Rows as after a rollout whose policy was a little different, some agents inactive."""
    rng = np.random.default_rng(seed)
    obs, available, action = data(kind, seed)
    components = A if kind == "Continuous" else 1
    active = (rng.random((B, N)) < 0.8).astype(float)
    return (
        obs,
        available,
        action,
        {
            "log_prob": rng.normal(-1.5, 0.3, size=(B, N, components)),
            "advantage": rng.normal(size=(B, N)),
            "value": rng.normal(size=(B, N)),
            "return": rng.normal(3, 30, size=(B, N)),  # beyond Huber's δ on both sides
            "active": active,
        },
    )


def ours_of(obs, available, action, rest):
    return Batch(
        seen=seen(obs, available),
        start=(),
        context=None,
        action=jnp.asarray(action),
        log_prob=jnp.asarray(rest["log_prob"]),
        value=jnp.asarray(rest["value"]),
        advantage=jnp.asarray(rest["advantage"]),
        target=jnp.asarray(rest["return"]),
        active=jnp.asarray(rest["active"]),
    )


def theirs_of(kind, obs, available, action, rest):
    torch_obs, chosen, legal = to_torch(kind, obs, available, action)
    wide = {k: torch.as_tensor(v if v.ndim == 3 else v[..., None]) for k, v in rest.items()}
    return {"obs": torch_obs, "action": chosen, "available": legal} | wide


class Given:
    """A policy whose parameters are the evaluation itself: the objective alone, no network."""

    def evaluate(self, params, start, context, seen, action):
        return params


@pytest.mark.parametrize("huber", [True, False])
@pytest.mark.parametrize("clip_value", [True, False])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("kind", ["Discrete", "Continuous"])
def test_every_form_of_the_objective(kind, huber, clip_value, norm, x64):
    """Scalar losses, and gradients with respect to what the network gives."""
    rows = learning_batch(kind)
    rng = np.random.default_rng(9)
    shape = rows[3]["log_prob"].shape
    log_prob, entropy = rows[3]["log_prob"] + rng.normal(0, 0.2, shape), rng.random(shape)
    value = rows[3]["value"] + rng.normal(0, 0.3, (B, N))
    objective = make_objective(
        inactive_targets=True,  # as the reference
        value_loss="huber" if huber else "squared",
        clip_value=clip_value,
        value_norm="valuenorm" if norm else "none",
        advantage_norm="none",
    )
    hyper = hyper_params(clip_eps=0.1, value_clip_eps=0.1, huber_delta=10.0 if norm else 20.0)
    given = Evaluation(*(jnp.asarray(x) for x in (log_prob, entropy, value)))
    batch = ours_of(*rows)
    minibatch_stats = objective.minibatch_stats(batch)
    _, statistics = objective.prepare(Given(), given, ValueNorm.create(), minibatch_stats)

    def loss(now):
        return objective.loss(Given(), hyper, now, statistics, batch, minibatch_stats)

    (_, metrics), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(given)

    batch = theirs_of(kind, *rows)
    inputs = [torch.tensor(x, requires_grad=True) for x in (log_prob, entropy, value[..., None])]
    value_norm = torch_core.ValueNorm(dtype=torch.float64) if norm else None
    theirs = torch_core.mat_loss(
        inputs[0], inputs[2], inputs[1], batch, 0.1, 1.0, 0.01,
        float(hyper.huber_delta) if huber else None, clip_value, value_norm, batch["active"],
    )  # fmt: skip
    theirs["total"].backward()
    for name in ("total_loss", "policy_loss", "value_loss", "entropy"):
        close(metrics[f"losses/{name}"], theirs[name.removesuffix("_loss")])
    for ours, tensor in zip(gradient, inputs, strict=True):
        np.testing.assert_allclose(ours, tensor.grad.reshape(ours.shape), atol=1e-12)
    if norm:
        close(statistics.moments()[0], value_norm.moments()[0].reshape(()))


def test_factored_actions_have_one_ratio_a_head(x64):
    """The reference has no such network: logits of all heads side by side, tokens likewise, and
    on-policy's loss for several heads, clipped per head and summed."""
    heads = (2, 3)
    torch.manual_seed(0)
    model = torch_mat.perturb(torch_mat.MultiAgentTransformer(OBS, A, N, 1, D, 1).double(), seed=1)
    policy = MatPolicy((OBS,) * N, MultiDiscrete(heads), D)
    params = mat_params(model, policy)
    rng = np.random.default_rng(2)
    obs, _, _ = data("Discrete")
    available = np.ones((B, N, A), bool)
    available[::2, :, 1] = False
    action = np.stack([np.zeros((B, N), int), rng.integers(0, 3, (B, N))], axis=-1)
    old = rng.normal(-1.0, 0.3, (B, N, 2))
    advantage = rng.normal(size=(B, N))

    coded = np.concatenate([np.eye(n)[action[..., k]] for k, n in enumerate(heads)], axis=-1)
    tokens = np.zeros((B, N, 1 + A))
    tokens[:, 0, 0] = 1
    tokens[:, 1:, 1:] = coded[:, :-1]
    torch_obs = torch.tensor(obs)
    out, _ = model.decode(model.encode(torch_obs), torch.tensor(tokens), torch_obs)
    out = out.masked_fill(~torch.tensor(available), -1e10)
    choices = [torch.distributions.Categorical(logits=part) for part in out.split(heads, dim=-1)]
    log_prob = torch.stack(
        [c.log_prob(torch.tensor(action[..., k])) for k, c in enumerate(choices)], -1
    )
    ratio, paid = (log_prob - torch.tensor(old)).exp(), torch.tensor(advantage)[..., None]
    surrogate = -torch.minimum(ratio * paid, ratio.clamp(0.9, 1.1) * paid).sum(-1).mean()

    batch = Batch(
        seen=seen(obs, available),
        start=(),
        context=None,
        action=jnp.asarray(action),
        log_prob=jnp.asarray(old),
        value=jnp.zeros((B, N)),
        advantage=jnp.asarray(advantage),
        target=jnp.zeros((B, N)),
        active=jnp.ones((B, N)),
    )
    objective = make_objective(advantage_norm="none", value_norm="none")
    _, metrics = jax.jit(partial(objective.loss, policy, hyper_params(clip_eps=0.1)))(
        params, ValueNorm.create(), batch, objective.minibatch_stats(batch)
    )
    close(metrics["losses/policy_loss"], surrogate)
    close(metrics["losses/entropy"], sum(c.entropy() for c in choices).mean())
    close(metrics["losses/clipfrac"], ((ratio - 1).abs() > 0.1).double().mean())
    _, decision = acted(policy, params, jax.random.key(0), batch.seen)
    assert decision.action.shape == (B, N, 2)
    assert (decision.action[::2, :, 0] == 0).all()
    again = jax.jit(policy.evaluate)(params, (), None, batch.seen, decision.action)
    np.testing.assert_allclose(decision.log_prob, again.log_prob, atol=1e-12)


GRADIENTS = [(kind, "mat") for kind in KINDS] + [("masked", name) for name in list(VARIANTS)[1:]]


@pytest.mark.parametrize(("kind", "variant"), GRADIENTS)
def test_gradients_through_the_network(kind, variant, x64):
    model, policy, params = models(kind, variant=variant)
    rows = learning_batch(kind)
    hyper, objective = (
        hyper_params(clip_eps=0.1, value_clip_eps=0.1),
        make_objective(advantage_norm="none", inactive_targets=True),
    )

    ours = ours_of(*rows)
    minibatch_stats = objective.minibatch_stats(ours)
    _, statistics = objective.prepare(policy, params, ValueNorm.create(), minibatch_stats)

    def loss(params):
        return objective.loss(policy, hyper, params, statistics, ours, minibatch_stats)[0]

    gradient = jax.jit(jax.grad(loss))(params)
    batch = theirs_of(kind, *rows)
    log_prob, value, entropy = model.evaluate(batch["obs"], batch["action"], batch["available"])
    theirs = torch_core.mat_loss(
        log_prob, value, entropy, batch, 0.1, 1.0, 0.01, 10.0, True,
        torch_core.ValueNorm(dtype=torch.float64), batch["active"],
    )  # fmt: skip
    theirs["total"].backward()
    grads = {
        name: np.zeros(tuple(p.shape)) if p.grad is None else p.grad.numpy()
        for name, p in model.named_parameters()
    }
    expected = params_of(MAT, grads, policy)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), gradient, expected)


@pytest.mark.parametrize("kind", ["Continuous", "masked"])
def test_one_full_update_of_ten_epochs(kind, x64):
    """With the gradient clip always active, and never."""
    _, policy, params = models(kind)
    rows = learning_batch(kind)
    hyper = hyper_params(lr=7e-4, clip_eps=0.05, value_clip_eps=0.05)
    objective = make_objective(advantage_norm="batch", inactive_targets=True)
    optimiser = optax.scale_by_adam(eps=1e-5)
    batch = ours_of(*rows)
    (known,) = moments([(batch.advantage, batch.active)])
    batch = batch._replace(advantage=objective.standardised(batch.advantage, known))

    @jax.jit
    def update(params, max_grad_norm):
        step = partial(
            gradient_step,
            batch=jax.tree.map(lambda x: x[None], batch),  # one piece
            minibatch_stats=objective.minibatch_stats(batch),
            prepare=partial(objective.prepare, policy),
            loss_fn=partial(objective.loss, policy, hyper),
            optimiser=optimiser,
            lr=hyper.lr,
            max_grad_norm=max_grad_norm,
        )
        learner = LearnerState(params, optimiser.init(params), ValueNorm.create())
        return jax.lax.scan(lambda learner, _: step(learner), learner, length=10)

    for max_grad_norm in (0.05, 1e6):
        learner, metrics = update(params, max_grad_norm)
        model, _, _ = models(kind)
        adam = torch.optim.Adam(model.parameters(), lr=7e-4, eps=1e-5)
        logged = torch_core.mat_update(
            model, adam, theirs_of(kind, *rows), 10, 1, np.tile(np.arange(B), (10, 1)), clip=0.05,
            max_grad_norm=max_grad_norm, value_norm=torch_core.ValueNorm(dtype=torch.float64),
        )  # fmt: skip
        norms = np.array([entry["grad_norm"] for entry in logged])
        np.testing.assert_allclose(metrics["losses/grad_norm"], norms, rtol=1e-9)
        assert (norms > max_grad_norm).all() == (max_grad_norm < 1)
        expected = mat_params(model, policy)
        moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), params, expected)
        assert max(jax.tree.leaves(moved)) > 1e-3
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), learner.params, expected
        )


def test_checkpoints_of_gaussians_are_no_other_distributions():
    model, policy, _ = models("Continuous")
    with pytest.raises(ValueError, match=r"net.distribution='beta'.*'gaussian'"):
        mat_params(model, replace(policy, distribution="beta"))


@pytest.mark.parametrize("encode_state", [False, True])
def test_checkpoints_that_encode_the_state_are_refused(encode_state):
    """Their names and shapes are the same. One step of torch's Adam, with the encoder reading
    what the reference gives it, moves either the observations' encoder or the state's."""
    torch.manual_seed(0)
    model = torch_mat.MultiAgentTransformer(OBS, A, N, 1, D, 1)
    obs, available, action = data("Discrete")
    given = [x.float() if x.is_floating_point() else x for x in
             to_torch("Discrete", obs, available, action)]  # fmt: skip
    if encode_state:
        state = torch.zeros(B, N, torch_mat.STATE_DIM)
        model.encoder.obs_encoder.forward = lambda _: model.encoder.state_encoder(state)
    adam = torch.optim.Adam(model.parameters(), lr=7e-4, eps=1e-5)
    log_prob, value, _ = model.evaluate(*given)
    (log_prob.mean() + (value - 1).square().mean()).backward()
    adam.step()
    policy = MatPolicy((OBS,) * N, Discrete(A), D)
    if not encode_state:
        mat_params(model, policy)
        return
    with pytest.raises(ValueError, match=r"state_encoder.*--encode_state"):
        mat_params(model, policy)
