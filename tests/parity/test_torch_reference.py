"""The PyTorch references hold to hand-computed numbers and to their own invariants."""

import numpy as np
import pytest
import torch

from tests.support.torch_core import (
    PopArt,
    ValueNorm,
    gae_loop,
    huber,
    mat_loss,
    mat_update,
    monte_carlo_loop,
    normalise_advantage,
)
from tests.support.torch_mat import MatDecoder, MatEncoder, MatGru, MultiAgentTransformer, perturb

OBS, ACTIONS, AGENTS, ROWS = 7, 4, 3, 6
DEAD = ("encoder.state_encoder", "decoder.obs_encoder")
MODELS = {
    "mat": MultiAgentTransformer,
    "dec_shared": lambda *a: MultiAgentTransformer(*a, dec_actor=True, share_actor=True),
    "dec_separate": lambda *a: MultiAgentTransformer(*a, dec_actor=True),
    "encoder": MatEncoder,
    "decoder": MatDecoder,
    "gru": MatGru,
}


def build(name, action_type="Discrete", dtype=torch.float64):
    torch.manual_seed(0)
    model = MODELS[name](OBS, ACTIONS, AGENTS, 2, 8, 2, action_type)
    return perturb(model, seed=1).to(dtype)


def sample(action_type, masked=False, dtype=torch.float64):
    """Observations, actions that are available, and the mask."""
    rng = np.random.default_rng(2)
    obs = torch.as_tensor(rng.normal(size=(ROWS, AGENTS, OBS)), dtype=dtype)
    if action_type == "Continuous":
        return obs, torch.as_tensor(rng.normal(size=(ROWS, AGENTS, ACTIONS)), dtype=dtype), None
    action = rng.integers(ACTIONS, size=(ROWS, AGENTS, 1))
    available = rng.random((ROWS, AGENTS, ACTIONS)) < 0.5
    np.put_along_axis(available, action, True, axis=-1)
    mask = torch.as_tensor(available, dtype=dtype) if masked else None
    return obs, torch.as_tensor(action), mask


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts():
    model = MultiAgentTransformer(21, 5, 3, 1, 64, 1)
    assert count(model.encoder.state_encoder) == 2506
    assert count(model.encoder) == 31147 + 2506
    assert count(model.decoder.obs_encoder) == 1450
    assert count(model.decoder) == 47109 + 1450
    assert count(model) == 82212


def test_state_dict_has_the_names_of_the_reference():
    names = set(MultiAgentTransformer(21, 5, 3, 1, 64, 1, "Continuous").state_dict())
    layers = [
        "encoder.state_encoder.0 encoder.state_encoder.1 encoder.obs_encoder.0",
        "encoder.obs_encoder.1 encoder.ln encoder.head.0 encoder.head.2 encoder.head.3",
        "encoder.blocks.0.ln1 encoder.blocks.0.ln2 encoder.blocks.0.mlp.0 encoder.blocks.0.mlp.2",
        "decoder.action_encoder.0 decoder.obs_encoder.0 decoder.obs_encoder.1 decoder.ln",
        "decoder.head.0 decoder.head.2 decoder.head.3 decoder.blocks.0.ln1 decoder.blocks.0.ln2",
        "decoder.blocks.0.ln3 decoder.blocks.0.mlp.0 decoder.blocks.0.mlp.2",
    ]
    layers = " ".join(layers).split()
    attentions = ["encoder.blocks.0.attn", "decoder.blocks.0.attn1", "decoder.blocks.0.attn2"]
    layers += [f"{a}.{part}" for a in attentions for part in ("key", "query", "value", "proj")]
    expected = {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}
    expected |= {f"{a}.mask" for a in attentions} | {"decoder.log_std"}
    assert names == expected
    discrete = set(MultiAgentTransformer(21, 5, 3, 1, 64, 1).state_dict())
    assert expected - discrete == {"decoder.log_std", "decoder.action_encoder.0.bias"}


@pytest.mark.parametrize("case", ["Discrete", "Continuous", "masked"])
@pytest.mark.parametrize("name", MODELS)
def test_acting_agent_by_agent_agrees_with_the_parallel_pass(name, case):
    action_type = "Continuous" if case == "Continuous" else "Discrete"
    model = build(name, action_type)
    obs, action, available = sample(action_type, masked=case == "masked")
    log_prob, value, entropy = model.evaluate(obs, action, available)
    acted_log_prob, acted_value, greedy = model.act_with(obs, action, available)
    assert log_prob.shape == entropy.shape == action.shape == greedy.shape
    assert value.shape == (ROWS, AGENTS, 1)
    torch.testing.assert_close(acted_log_prob, log_prob, rtol=0, atol=1e-12)
    torch.testing.assert_close(acted_value, value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("action_type", ["Discrete", "Continuous"])
@pytest.mark.parametrize("name", MODELS)
def test_greedy_is_its_own_greedy_choice_and_available(name, action_type):
    model = build(name, action_type)
    obs, _, available = sample(action_type, masked=True)
    action = model.greedy(obs, available)
    _, _, again = model.act_with(obs, action, available)
    assert torch.equal(again, action)
    if action_type == "Discrete":
        assert available.gather(-1, action).all()


def test_policy_of_an_agent_reads_the_actions_before_it_only():
    model = build("mat")
    obs, action, _ = sample("Discrete")
    other = action.clone()
    other[:, 1] = (other[:, 1] + 1) % ACTIONS
    before, _, _ = model.evaluate(obs, action)
    after, _, _ = model.evaluate(obs, other)
    changed = (before - after).abs().amax(dim=(0, 2)) > 1e-6
    assert changed.tolist() == [False, True, True]
    assert torch.equal(before[:, 0], after[:, 0])


def test_both_precisions_agree():
    for name in MODELS:
        obs, action, available = sample("Discrete", masked=True)
        exact = build(name).evaluate(obs, action, available)
        single = build(name, dtype=torch.float32).evaluate(obs.float(), action, available)
        for a, b in zip(single, exact, strict=True):
            assert a.dtype == torch.float32
            torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-4)


def test_gae_by_hand():
    # Two steps, γ = ½, λ = ½, the second truncated:  δ₀ = 1 + ½·3 - 2 = ½.
    reward, value = np.array([1.0, 2.0]), np.array([2.0, 3.0])
    next_value, truncated = np.array([3.0, 4.0]), np.array([False, True])
    expected = {
        "bootstrap": [0.5 + 0.25 * 1.0, 2.0 + 0.5 * 4.0 - 3.0],
        "terminal": [0.5 + 0.25 * -1.0, 2.0 - 3.0],
        "zero_gae": [0.5, 0.0],
    }
    column = [x.reshape(2, 1, 1) for x in (reward, value, next_value)]
    ends = np.zeros((2, 1, 1), bool), truncated.reshape(2, 1)
    for mode, by_hand in expected.items():
        advantage, returns = gae_loop(*column, *ends, 0.5, 0.5, mode)
        np.testing.assert_allclose(advantage.ravel(), by_hand)
        np.testing.assert_allclose(returns.ravel(), by_hand + value)


def test_gae_at_lambda_one_is_monte_carlo():
    rng = np.random.default_rng(3)
    reward, value, next_value = rng.normal(size=(3, 12, 5, 2))
    terminated, truncated = rng.random((12, 5, 2)) < 0.2, rng.random((12, 5)) < 0.2
    done = (terminated | truncated[..., None])[:-1]
    next_value[:-1] = np.where(done, next_value[:-1], value[1:])
    _, returns = gae_loop(reward, value, next_value, terminated, truncated, 0.9, 1.0, "bootstrap")
    expected = monte_carlo_loop(reward, next_value, terminated, truncated, 0.9)
    np.testing.assert_allclose(returns, expected)


def test_value_norm():
    norm = ValueNorm(dtype=torch.float64)
    v = torch.tensor([[1.0], [-3.0]], dtype=torch.float64)
    torch.testing.assert_close(norm.denormalize(v), 0.1 * v)
    x = torch.tensor([[2.0], [4.0], [9.0]], dtype=torch.float64)
    norm.update(x)
    # One debiased update has the moments of the batch: mean 5, variance 26/3.
    torch.testing.assert_close(norm.normalize(x), (x - 5) / (26 / 3) ** 0.5)
    torch.testing.assert_close(norm.denormalize(norm.normalize(x)), x)


def test_popart_keeps_the_denormalised_output():
    generator = torch.Generator().manual_seed(4)
    weight, x = torch.randn(2, 1, 8, generator=generator, dtype=torch.float64)
    head = PopArt(weight, torch.tensor([0.7], dtype=torch.float64))
    before = head.denormalize(head(x))
    for shift in (5.0, -2.0):
        head.update(3 * torch.randn(20, 1, generator=generator, dtype=torch.float64) + shift)
        torch.testing.assert_close(head.denormalize(head(x)), before)


def test_huber_is_two_sided():
    e = torch.tensor([0.0, 2.0, -2.0, 10.0, 20.0, -20.0])
    expected = torch.tensor([0.0, 2.0, 2.0, 50.0, 150.0, 150.0])
    torch.testing.assert_close(huber(e, 10.0), expected)


def test_mat_loss_by_hand():
    # Two agents, one inactive, two action dimensions, ε = 0.2. Ratios 1.5 and 0.5, A = 2:
    # min(3, 2.4) + min(1, 1.6) = 3.4. V_old 0, V 1, R 3: V_clip 0.2, max(2²/2, 2.8²/2) = 3.92.
    def rows(active, inactive):
        return torch.tensor([[active, inactive]])

    batch = {
        "log_prob": torch.zeros(1, 2, 2),
        "advantage": rows([2.0], [7.0]),
        "value": rows([0.0], [7.0]),
        "return": rows([3.0], [7.0]),
    }
    log_prob = rows([1.5, 0.5], [9.0, 9.0]).log()
    entropy = rows([0.3, 0.4], [9.0, 9.0])
    value, active = rows([1.0], [9.0]), rows([1.0], [0.0])
    loss = mat_loss(log_prob, value, entropy, batch, 0.2, 0.5, 0.1, None, True, None, active)
    by_hand = {"policy": -3.4, "value": 3.92, "entropy": 0.7, "ratio_mean": 5.0}
    by_hand["total"] = -3.4 - 0.1 * 0.7 + 0.5 * 3.92
    assert {name: x.item() for name, x in loss.items()} == pytest.approx(by_hand)


def test_normalise_advantage_ignores_the_inactive():
    rng = np.random.default_rng(5)
    advantage, active = rng.normal(size=(4, 3, 2, 1)), rng.random((4, 3, 2, 1)) < 0.7
    counted = np.where(active, advantage, np.nan)
    expected = (advantage - np.nanmean(counted)) / (np.nanstd(counted) + 1e-5)
    np.testing.assert_allclose(normalise_advantage(advantage, active), expected)


def test_update_moves_live_parameters_only():
    model = build("mat", dtype=torch.float32)
    obs, action, available = sample("Discrete", masked=True, dtype=torch.float32)
    with torch.no_grad():
        log_prob, value, _ = model.evaluate(obs, action, available)
    batch = {"obs": obs, "action": action, "available": available, "log_prob": log_prob}
    batch |= {"value": value, "return": value + 1, "advantage": torch.randn_like(value)}
    batch |= {"active": torch.ones_like(value)}
    before = {name: p.clone() for name, p in model.named_parameters()}
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-5)
    orders = np.stack([np.arange(ROWS), np.arange(ROWS)[::-1]])
    history = mat_update(model, optimiser, batch, 2, 2, orders, clip=0.2, value_norm=ValueNorm())
    assert len(history) == 4
    assert history[0]["ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    assert all(np.isfinite(list(info.values())).all() for info in history)
    for name, p in model.named_parameters():
        if name.startswith(DEAD):
            assert p.grad is None
            assert torch.equal(p, before[name])
        # A softmax does not see a constant added to its row: the gradient of b_key is rounding.
        elif not name.endswith("key.bias"):
            assert not torch.equal(p, before[name])
