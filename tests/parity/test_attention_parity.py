"""Attention maps against torch: softmax of its own queries and keys, in numpy, from one forward
pass over the same weights, observations and actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.torch_baseline.mat_networks import SelfAttention
from jmarl.replays.attention import PARTS, RecordedDecision, attention_of
from tests.parity.test_mat_parity import B, N, data, models, seen, to_torch

BLOCKS, HEADS = 2, 2
DECODER = ("actions", "decision")


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def torch_weights(model, obs, action, available):
    """By part and block: `[B, heads, N, N]`, rows and columns by turn."""
    found, hooks = {}, []

    def listen(name, attention, args, kwargs):
        source, query = (kwargs["key"], kwargs["query"]) if kwargs else (args[0], args[2])
        k, q = (
            layer(x).detach().numpy().reshape(B, N, HEADS, -1)
            for layer, x in ((attention.key, source), (attention.query, query))
        )
        scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[-1])
        if attention.masked:
            scores = np.where(np.tril(np.ones((N, N), bool)), scores, -np.inf)
        found[name] = softmax(scores)

    for path, module in model.named_modules():
        if isinstance(module, SelfAttention):
            *_, block, last = path.split(".")
            name = (PARTS[last], int(block))
            hook = module.register_forward_pre_hook(
                lambda m, args, kwargs, name=name: listen(name, m, args, kwargs), with_kwargs=True
            )
            hooks.append(hook)
    model.evaluate(obs, action, available)
    for hook in hooks:
        hook.remove()
    return found


def placed(by_turn, order, told):
    """By agent, entry by entry."""
    out = np.zeros((B, HEADS, N, N + told))
    for b in range(B):
        for turn, agent in enumerate(order[b]):
            for other, whose in enumerate(order[b]):
                if not told:
                    out[b, :, agent, whose] = by_turn[b, :, turn, other]
                elif other + 1 < N:  # the token after its own turn carries an agent's action
                    out[b, :, agent, 1 + whose] = by_turn[b, :, turn, other + 1]
            if told:
                out[b, :, agent, 0] = by_turn[b, :, turn, 0]
    return out


CASES = [
    ("masked", "mat", "fixed", ("views", *DECODER)),
    ("Discrete", "mat", "random", ("views", *DECODER)),
    ("Continuous", "mat", "random", ("views", *DECODER)),
    ("Discrete", "mat_decoder", "random", DECODER),
    ("Discrete", "mat_encoder", "fixed", ("views",)),
    ("Continuous", "mat_dec", "fixed", ("views",)),
    ("Discrete", "mat_gru", "fixed", ()),
]


@pytest.mark.parametrize(("kind", "variant", "turns", "parts"), CASES)
def test_maps_are_softmax_of_torchs_queries_and_keys(kind, variant, turns, parts, x64):
    model, policy, params = models(kind, BLOCKS, HEADS, variant, turns)
    obs, available, action = data(kind)
    rng = np.random.default_rng(3)
    order = np.tile(np.arange(N), (B, 1))
    if turns == "random":
        order = rng.permuted(order, axis=1)
    rows = np.arange(B)[:, None]
    by_turn = to_torch(kind, obs[rows, order], available[rows, order], action[rows, order])
    theirs = torch_weights(model, *by_turn)
    assert set(theirs) == {(part, block) for part in parts for block in range(BLOCKS)}

    context = jnp.asarray(order) if turns == "random" else None
    watched = RecordedDecision(seen(obs, available), jnp.asarray(action), context)
    ours = jax.jit(lambda params: attention_of(policy, params, watched))(params)
    assert set(ours) == set(theirs)
    for (part, block), weights in ours.items():
        expected = placed(theirs[part, block], order, told=part != "views")
        np.testing.assert_allclose(weights, expected, atol=1e-12)
        np.testing.assert_allclose(np.asarray(weights).sum(-1), 1, atol=1e-12)
        if part != "views":  # nobody hears of those whose turn is not before
            for b in range(B):
                later = [(i, 1 + j) for t, i in enumerate(order[b]) for j in order[b][t:]]
                assert all((np.asarray(weights)[b, :, i, j] == 0).all() for i, j in later)
