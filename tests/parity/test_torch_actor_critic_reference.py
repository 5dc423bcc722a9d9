"""The PyTorch references of MAPPO and IPPO hold to hand-computed numbers and invariants."""

import itertools
import math

import pytest
import torch

from tests.support.torch_actor_critic import (
    Actor,
    Critic,
    RnnLayer,
    XuanceNet,
    entropy_bonus,
    mindspore_clip,
    onpolicy_losses,
    onpolicy_update,
    perturb,
    tensorflow_value_target,
    unnormalised_no_clip_value_loss,
    xuance_losses,
    xuance_update,
    xuance_value_loss,
)
from tests.support.torch_core import ValueNorm

OBS, ROWS, AGENTS, STEPS, HIDDEN, CHOICES = 5, 4, 3, 6, 8, 4
ACTIONS = {"discrete": ("discrete", CHOICES), "box": ("box", 2), "multi": ("multi", (3, 2))}
FLOAT = torch.float64


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=FLOAT)


def integers(high, *shape, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def double(model, scale=0.3):
    return perturb(model, seed=1, scale=scale).to(FLOAT)


def sgd(*modules, lr=0.1):
    return torch.optim.SGD([p for m in modules for p in m.parameters()], lr=lr)


def parameters(module):
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def set_output(layer, constant=0.0):
    """A linear layer whose output is a constant."""
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.constant_(layer.bias, constant)


def some_actions(kind, *rows):
    if kind == "discrete":
        return integers(CHOICES, *rows, 1)
    if kind == "box":
        return normal(*rows, 2, seed=3)
    return torch.cat([integers(n, *rows, 1, seed=n) for n in ACTIONS["multi"][1]], -1)


def onpolicy_batch(kind="discrete", recurrent=False):
    """Nets and a batch in which the stored log-probs and values are the nets' own."""
    torch.manual_seed(0)
    actor = double(Actor(OBS, ACTIONS[kind], HIDDEN, recurrent=recurrent))
    critic = double(Critic(2 * OBS, HIDDEN, recurrent=recurrent))
    rows = (STEPS, ROWS) if recurrent else (ROWS, AGENTS)
    active = torch.ones(*rows, 1, dtype=FLOAT)
    active[0, 0] = active[1, 2] = 0
    batch = {
        "obs": normal(*rows, OBS, seed=1),
        "critic_in": normal(*rows, 2 * OBS, seed=2),
        "action": some_actions(kind, *rows),
        "advantage": normal(*rows, 1, seed=4),
        "return": normal(*rows, 1, seed=5),
        "active": active,
    }
    if recurrent:
        masks = torch.ones(*rows, 1, dtype=FLOAT)
        masks[3, 1] = masks[0, 2] = 0
        hidden = {"actor_h": normal(ROWS, HIDDEN, seed=6), "critic_h": normal(ROWS, HIDDEN, seed=7)}
        batch |= {"masks": masks, **hidden}
    with torch.no_grad():
        batch["log_prob"], _, _ = actor.evaluate(
            batch["obs"], batch.get("actor_h"), batch["action"], batch.get("masks")
        )
        batch["value"], _ = critic(batch["critic_in"], batch.get("critic_h"), batch.get("masks"))
    return actor, critic, batch


def xuance_batch(continuous=False):
    torch.manual_seed(0)
    out, log_std = (2, -1.0) if continuous else (CHOICES, None)
    actor = double(XuanceNet(OBS, (HIDDEN,), (HIDDEN,), out, AGENTS, log_std=log_std))
    critic = double(XuanceNet(AGENTS * OBS, (HIDDEN,), (HIDDEN,), 1, AGENTS))
    obs = normal(ROWS, AGENTS, OBS, seed=1)
    mask = torch.ones(ROWS, AGENTS, 1, dtype=FLOAT)
    mask[0, 0] = mask[1, 2] = 0
    batch = {
        "obs": obs,
        "critic_in": obs.reshape(ROWS, 1, -1).expand(-1, AGENTS, -1),
        "action": normal(ROWS, AGENTS, 2) if continuous else integers(CHOICES, ROWS, AGENTS),
        "advantage": normal(ROWS, AGENTS, 1, seed=4),
        "return": normal(ROWS, AGENTS, 1, seed=5),
        "agent_mask": mask,
    }
    with torch.no_grad():
        batch["log_prob"] = actor.distribution(actor(obs)).log_prob(batch["action"])
        batch["value"] = critic(batch["critic_in"])
    return actor, critic, batch


def xuance_episodes():
    torch.manual_seed(0)
    options = {"normalize": True, "recurrent": True}
    actor = double(XuanceNet(OBS, (HIDDEN,), (HIDDEN,), CHOICES, AGENTS, **options))
    critic = double(XuanceNet(OBS, (HIDDEN,), (HIDDEN,), 1, AGENTS, **options))
    rows = (ROWS, AGENTS, STEPS)
    obs = normal(ROWS, AGENTS, STEPS + 1, OBS, seed=1)
    filled = torch.ones(ROWS, STEPS, 1, dtype=FLOAT)
    filled[0, 2:] = filled[1, 5:] = 0
    batch = {
        "obs": obs,
        "critic_in": obs,
        "action": integers(CHOICES, *rows),
        "advantage": normal(*rows, 1, seed=4),
        "return": normal(*rows, 1, seed=5),
        "filled": filled,
    }
    with torch.no_grad():
        dist = actor.distribution(actor(obs)[:, :, :-1])
        batch["log_prob"] = dist.log_prob(batch["action"])
        batch["value"] = critic(obs)[:, :, :-1]
    return actor, critic, batch


def test_onpolicy_names():
    dense = ["base.mlp.fc1.0", "base.mlp.fc2.0.0", "act.action_out.linear"]
    norms = ["base.feature_norm", "base.mlp.fc1.2", "base.mlp.fc2.0.2", "rnn.norm"]
    gru = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    names = {f"{layer}.{part}" for layer in dense + norms for part in ("weight", "bias")}
    names |= {f"rnn.rnn.{part}" for part in gru}
    assert set(Actor(OBS, ACTIONS["discrete"], recurrent=True).state_dict()) == names


def test_onpolicy_names_of_other_heads():
    box = Actor(OBS, ACTIONS["box"]).state_dict()
    assert box["act.action_out.fc_mean.weight"].shape == (2, 64)
    assert torch.equal(box["act.action_out.logstd._bias"], torch.zeros(2, 1))
    multi = Actor(OBS, ACTIONS["multi"], layer_n=2).state_dict()
    assert multi["act.action_outs.0.linear.weight"].shape == (3, 64)
    assert multi["act.action_outs.1.linear.weight"].shape == (2, 64)
    assert "base.mlp.fc2.1.2.bias" in multi
    critic = Critic(OBS, feature_norm=False).state_dict()
    assert critic["v_out.weight"].shape == (1, 64)
    assert not any("feature_norm" in name or "rnn" in name for name in critic)


@pytest.mark.parametrize(("activation", "gain"), [("relu", 2**0.5), ("tanh", 5 / 3)])
def test_onpolicy_initial_weights(activation, gain):
    actor = Actor(OBS, ACTIONS["discrete"], activation=activation, recurrent=True).to(FLOAT)
    eye = torch.eye(64, dtype=FLOAT)
    hidden = actor.base.mlp.fc2[0][0].weight
    assert torch.allclose(hidden @ hidden.T, gain**2 * eye, atol=1e-5)
    head = actor.act.action_out.linear.weight
    assert torch.allclose(head @ head.T, 1e-4 * eye[:CHOICES, :CHOICES], atol=1e-8)
    for stacked in (actor.rnn.rnn.weight_ih_l0, actor.rnn.rnn.weight_hh_l0):
        assert torch.allclose(stacked.T @ stacked, eye, atol=1e-5)
    assert all((p == 0).all() for name, p in actor.named_parameters() if name.endswith("bias"))


def test_xuance_initial_weights():
    net = XuanceNet(64, (64,), (), 1, log_std=-1)
    weight = net.representation[0].weight
    assert torch.allclose(weight @ weight.T, torch.eye(64), atol=1e-5)
    assert net.out.weight.norm().item() == pytest.approx(1, abs=1e-5)
    assert torch.equal(net.log_std, torch.tensor([-1.0]))


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("kind", ["discrete", "box", "multi"])
def test_onpolicy_shapes(kind, recurrent):
    actor, critic, batch = onpolicy_batch(kind, recurrent)
    log_prob, entropy, h = actor.evaluate(
        batch["obs"], batch.get("actor_h"), batch["action"], batch.get("masks")
    )
    value, _ = critic(batch["critic_in"], batch.get("critic_h"), batch.get("masks"))
    rows = batch["obs"].shape[:-1]
    assert log_prob.shape == (*rows, 2 if kind == "multi" else 1)
    assert entropy.shape == ((*rows, 2) if kind == "multi" else rows)
    assert value.shape == (*rows, 1)
    assert log_prob.dtype == entropy.dtype == value.dtype == FLOAT
    assert h is None if not recurrent else h.shape == (ROWS, HIDDEN)


def test_gru_restarts_where_the_mask_is_zero():
    layer = double(RnnLayer(HIDDEN))
    x, h = normal(STEPS, 3, HIDDEN), normal(3, HIDDEN, seed=1)
    # Row 0 restarts at steps 2 and 5, row 1 at its first step, row 2 never.
    restarts = [[2, 5], [0], []]
    masks = torch.ones(STEPS, 3, 1, dtype=FLOAT)
    for row, steps in enumerate(restarts):
        masks[steps, row] = 0
    outputs, last = layer(x, h, masks)
    for row, steps in enumerate(restarts):
        bounds = sorted({0, *steps, STEPS})
        for start, end in itertools.pairwise(bounds):
            state = torch.zeros_like(h[row]) if start in steps else h[row]
            y, _ = layer.rnn(x[start:end, row : row + 1], state.reshape(1, 1, HIDDEN))
            assert torch.allclose(outputs[start:end, row], layer.norm(y[:, 0]), atol=1e-12)
        assert torch.allclose(last[row], y[-1, 0], atol=1e-12)


def test_masked_log_probs():
    actor, _, batch = onpolicy_batch()
    available = torch.ones(ROWS, AGENTS, CHOICES)
    available[..., 0] = 0
    set_output(actor.act.action_out.linear)
    for choice, expected in ((0, -1e10), (1, -math.log(3))):
        action = torch.full((ROWS, AGENTS, 1), choice)
        log_prob, entropy, _ = actor.evaluate(batch["obs"], None, action, None, available)
        assert torch.allclose(log_prob, torch.tensor(expected, dtype=FLOAT))
        assert torch.allclose(entropy, torch.tensor(math.log(3), dtype=FLOAT))
    boxed, _, batch = onpolicy_batch("box")
    with pytest.raises(ValueError, match="no mask"):
        boxed.evaluate(batch["obs"], None, batch["action"], None, available)


def test_box_is_a_joint_density():
    actor, _, batch = onpolicy_batch("box")
    set_output(actor.act.action_out.fc_mean)
    torch.nn.init.zeros_(actor.act.action_out.logstd._bias)
    log_prob, entropy, _ = actor.evaluate(batch["obs"], None, batch["action"], None)
    expected = -(batch["action"] ** 2).sum(-1, keepdim=True) / 2 - math.log(2 * math.pi)
    assert torch.allclose(log_prob, expected)
    assert torch.allclose(entropy, torch.tensor(1 + math.log(2 * math.pi), dtype=FLOAT))


@pytest.mark.parametrize(("kind", "heads"), [("discrete", 1), ("box", 1), ("multi", 2)])
@pytest.mark.parametrize("recurrent", [False, True])
def test_onpolicy_actor_loss_at_ratio_one(kind, heads, recurrent):
    actor, critic, batch = onpolicy_batch(kind, recurrent)
    losses = onpolicy_losses(actor, critic, batch, 0.2)
    active, advantage = batch["active"] == 1, batch["advantage"]
    assert losses["policy"].item() == pytest.approx(-heads * advantage[active].mean().item())


def test_onpolicy_ratio_is_clipped_per_head():
    actor, critic, batch = onpolicy_batch("multi")
    batch["advantage"] = torch.ones_like(batch["advantage"])
    # Ratios 1.5 and 0.5: clipped to 1.2, kept at 0.5. Their product 0.75 would be kept.
    batch["log_prob"] = batch["log_prob"] - torch.tensor([1.5, 0.5], dtype=FLOAT).log()
    losses = onpolicy_losses(actor, critic, batch, 0.2)
    assert losses["policy"].item() == pytest.approx(-1.7)


def test_entropy_over_heads():
    active = torch.tensor([[1.0], [0.0], [1.0]])
    entropy = torch.tensor([[1.0, 2.0], [100.0, 100.0], [3.0, 6.0]])
    assert entropy_bonus(entropy, active).item() == 3
    assert entropy_bonus(entropy, active, "sum").item() == 6
    assert entropy_bonus(entropy[:, 0], active).item() == 2


# V = 0, e = target. Old value 1 and clip 0.2: V_clip = 0.8.
VALUE_CASES = [
    # target, huber δ, clipped, on-policy, XuanCe
    (3.0, None, False, 4.5, 9.0),
    (3.0, 1.0, False, 2.5, 2.5),
    (-3.0, None, True, 3.8**2 / 2, 3.8**2),
    (3.0, None, True, 4.5, 9.0),
    (-3.0, 1.0, True, 3.3, 3.3),
]


@pytest.mark.parametrize(("target", "delta", "clipped", "onpolicy", "xuance"), VALUE_CASES)
def test_value_losses(target, delta, clipped, onpolicy, xuance):
    actor, critic, batch = onpolicy_batch()
    set_output(critic.v_out)
    batch["return"] = torch.full_like(batch["return"], target)
    batch["value"] = torch.ones_like(batch["value"])
    loss = onpolicy_losses(actor, critic, batch, 0.2, delta, clipped)["value"]
    assert loss.item() == pytest.approx(onpolicy)
    actor, critic, batch = xuance_batch()
    set_output(critic.out)
    batch["return"] = torch.full_like(batch["return"], target)
    batch["value"] = torch.ones_like(batch["value"])
    options = (0.2, delta is not None, delta, clipped)
    assert xuance_losses(actor, critic, batch, 0.2, *options)["value"].item() == pytest.approx(
        xuance
    )


def test_value_norm_scales_the_target():
    # Targets 1 and 3: mean 2, variance 1, normalised ±1. The network says 0.
    value = torch.zeros(2, 1, dtype=FLOAT)
    target = torch.tensor([[1.0], [3.0]], dtype=FLOAT)
    mask = torch.ones(2, 1, dtype=FLOAT)
    for clipped in (False, True):
        loss = xuance_value_loss(
            value, value, target, 0.2, False, None, clipped, ValueNorm(dtype=FLOAT), mask
        )
        assert loss.item() == pytest.approx(1, rel=1e-4)
    # The variant scales the 0 to -2 instead: ((-2 - 1)² + (-2 - 3)²) / 2.
    wrong = unnormalised_no_clip_value_loss(value, target, ValueNorm(dtype=FLOAT), mask)
    assert wrong.item() == pytest.approx(17, rel=1e-4)


def test_onpolicy_value_norm_learns_before_it_scales():
    actor, critic, batch = onpolicy_batch()
    set_output(critic.v_out)
    batch["value"] = torch.zeros_like(batch["value"])
    batch["return"] = torch.where(torch.arange(AGENTS)[:, None] % 2 == 0, 1.0, 4.0).to(FLOAT)
    batch["return"] = batch["return"].expand(ROWS, AGENTS, 1)
    batch["active"] = torch.ones_like(batch["active"])
    norm = ValueNorm(dtype=FLOAT)
    loss = onpolicy_losses(actor, critic, batch, 0.2, None, value_norm=norm)["value"]
    # A standardised target has mean square 1.
    assert loss.item() == pytest.approx(0.5, rel=1e-4)
    assert norm.moments()[0].item() == pytest.approx(2)


@pytest.mark.parametrize("continuous", [False, True])
def test_xuance_actor_loss_at_ratio_one(continuous):
    actor, critic, batch = xuance_batch(continuous)
    losses = xuance_losses(actor, critic, batch, 0.2, 0.2)
    total = (batch["advantage"] * batch["agent_mask"]).sum().item()
    assert losses["policy"].item() == pytest.approx(-total / ROWS)


def test_xuance_sums_over_agents():
    actor, critic, batch = xuance_batch()
    batch["agent_mask"] = torch.ones_like(batch["agent_mask"])
    losses = xuance_losses(actor, critic, batch, 0.2, 0.2)
    assert losses["policy"].item() == pytest.approx(-AGENTS * batch["advantage"].mean().item())


def test_xuance_entropy_counts_the_masked_as_zero():
    actor, critic, batch = xuance_batch()
    set_output(actor.out)
    losses = xuance_losses(actor, critic, batch, 0.2, 0.2)
    kept = batch["agent_mask"].mean().item()
    assert losses["entropy"].item() == pytest.approx(math.log(CHOICES) * kept)
    onpolicy, critic, batch = onpolicy_batch()
    set_output(onpolicy.act.action_out.linear)
    losses = onpolicy_losses(onpolicy, critic, batch, 0.2)
    assert losses["entropy"].item() == pytest.approx(math.log(CHOICES))


def test_xuance_mask_of_available_actions():
    actor, critic, batch = xuance_batch()
    set_output(actor.out)
    batch["available"] = torch.ones(ROWS, AGENTS, CHOICES)
    batch["available"][..., 0] = 0
    batch["agent_mask"] = torch.ones_like(batch["agent_mask"])
    batch["action"] = torch.ones_like(batch["action"])
    losses = xuance_losses(actor, critic, batch, 0.2, 0.2)
    assert losses["entropy"].item() == pytest.approx(math.log(3))


def test_variants_differ():
    _, _, batch = xuance_batch()
    assert not torch.allclose(tensorflow_value_target(batch), batch["return"])
    assert torch.equal(tensorflow_value_target(batch), batch["value"])
    assert mindspore_clip(0.2) == 0.1


def test_xuance_id_joins_after_the_representation():
    net = double(XuanceNet(OBS, (HIDDEN,), (), 2, AGENTS))
    assert net.representation[0].weight.shape == (HIDDEN, OBS)
    assert net.out.weight.shape == (2, HIDDEN + AGENTS)
    same = normal(ROWS, 1, OBS).expand(-1, AGENTS, -1)
    out = net(same)
    ids = net.out.weight[:, HIDDEN:].T
    assert torch.allclose(out - out[:, :1], ids - ids[:1], atol=1e-12)
    nameless = double(XuanceNet(OBS, (HIDDEN,), (), 2))(same)
    assert torch.allclose(nameless, nameless[:, :1], atol=1e-12)


def test_xuance_sequences_are_separate_and_causal():
    net = double(XuanceNet(OBS, (HIDDEN,), (HIDDEN,), 2, AGENTS, recurrent=True))
    x = normal(ROWS, AGENTS, STEPS, OBS)
    changed = x.clone()
    changed[1, 2, 3] += normal(OBS, seed=9)
    moved = (net(changed) - net(x)).abs().amax(-1) > 1e-9
    expected = torch.zeros(ROWS, AGENTS, STEPS, dtype=torch.bool)
    expected[1, 2, 3:] = True
    assert torch.equal(moved, expected)
    # Every agent as in a batch of one, the id given by its place.
    local_sum = net(x[1:2])
    assert torch.allclose(local_sum[0], net(x)[1], atol=1e-12)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("kind", ["discrete", "box", "multi"])
def test_onpolicy_update_clips_the_two_nets_apart(kind, recurrent):
    actor, critic, batch = onpolicy_batch(kind, recurrent)
    before = parameters(actor), parameters(critic)
    limit = 1e-3
    info = onpolicy_update(
        actor,
        critic,
        sgd(actor, lr=1.0),
        sgd(critic, lr=1.0),
        batch,
        clip=0.2,
        value_coef=0.5,
        entropy_coef=0.01,
        max_grad_norm=limit,
        huber_delta=10.0,
        clip_value=True,
        value_norm=ValueNorm(dtype=FLOAT),
    )
    assert set(info) == {"policy", "value", "entropy", "actor_grad_norm", "critic_grad_norm"}
    for module, old, name in zip((actor, critic), before, ("actor", "critic"), strict=True):
        norm = info[f"{name}_grad_norm"]
        assert norm > limit
        moved = (parameters(module) - old).norm().item()
        assert moved == pytest.approx(limit * norm / (norm + 1e-6), rel=1e-9)


def test_xuance_update_clips_the_two_nets_together():
    actor, critic, batch = xuance_batch()
    before = parameters(actor), parameters(critic)
    options = (0.2, 0.2, 0.5, 0.01, 1e-3, True, 10.0, True)
    info = xuance_update(actor, critic, sgd(actor, critic, lr=1.0), batch, *options)
    assert set(info) == {"policy", "value", "entropy", "total", "grad_norm"}
    total = info["policy"] + 0.5 * info["value"] - 0.01 * info["entropy"]
    assert info["total"] == pytest.approx(total)
    moved = [(parameters(m) - old).norm() for m, old in zip((actor, critic), before, strict=True)]
    assert all(x > 0 for x in moved)
    assert math.hypot(*moved) == pytest.approx(
        1e-3 * info["grad_norm"] / (info["grad_norm"] + 1e-6), rel=1e-9
    )


def test_xuance_update_of_a_gaussian_moves_its_log_std():
    actor, critic, batch = xuance_batch(continuous=True)
    before = actor.log_std.detach().clone()
    options = (0.2, 0.2, 0.5, 0.01, None, False, None, False)
    xuance_update(actor, critic, sgd(actor, critic), batch, *options, ValueNorm(dtype=FLOAT))
    assert (actor.log_std != before).all()


def test_xuance_recurrent_update_masks_what_is_not_filled():
    options = (0.2, 0.2, 0.5, 0.01, 10.0, True, 10.0, True)
    results = []
    for junk in (0.0, 7.0):
        actor, critic, batch = xuance_episodes()
        filled = batch["filled"].unsqueeze(1).expand(-1, AGENTS, -1, -1)
        for name in ("advantage", "return", "value"):
            batch[name] = torch.where(filled == 1, batch[name], junk)
        # The last observation is there for the bootstrap only.
        batch["obs"] = batch["obs"].clone()
        batch["obs"][:, :, -1] += junk
        info = xuance_update(actor, critic, sgd(actor, critic), batch, *options, recurrent=True)
        results.append((info, parameters(actor), parameters(critic)))
        expected = -batch["advantage"][filled == 1].mean().item()
        assert info["policy"] == pytest.approx(expected)
    (info, *nets), (other, *others) = results
    assert info == pytest.approx(other)
    assert all(torch.allclose(x, y, atol=1e-12) for x, y in zip(nets, others, strict=True))


def test_xuance_recurrent_value_norm_sees_padding():
    actor, critic, batch = xuance_episodes()
    norm = ValueNorm(dtype=FLOAT)
    options = (0.2, 0.2, 0.5, 0.01, 10.0, False, None, False)
    xuance_update(actor, critic, sgd(actor, critic), batch, *options, norm, recurrent=True)
    assert norm.moments()[0].item() == pytest.approx(batch["return"].mean().item())
