"""MAPPO and IPPO in PyTorch, after on-policy and after XuanCe: what the JAX versions must match.

The on-policy modules are the baseline's own, with further kinds of actions; those of XuanCe follow
its equations only. T steps, B rows, N agents, K sub-actions, H hidden.
Everything computes in the precision of the modules and tensors that it is given.
"""

import math

import torch
from torch import nn
from torch.distributions import Categorical, Independent, Normal
from torch.nn.utils import clip_grad_norm_

from benchmarks.torch_baseline import actor_critic_networks as networks
from benchmarks.torch_baseline.actor_critic_networks import (
    ACTIVATIONS,
    CategoricalHead,
    Trunk,
    orthogonal_gru,
)
from benchmarks.torch_baseline.actor_critic_networks import RnnLayer as RnnLayer
from benchmarks.torch_baseline.mat_networks import linear
from tests.support.torch_core import huber, masked_mean, policy_loss, value_loss
from tests.support.torch_mat import MASKED_LOGIT
from tests.support.torch_mat import perturb as perturb


def categorical(logits, available=None):
    """Categorical of the logits, -1e10 where unavailable."""
    if available is not None:
        logits = logits.masked_fill(available == 0, MASKED_LOGIT)
    return Categorical(logits=logits)


def gaussian(mean, log_std):
    """Normal(mean, exp(log_std)) of the whole action: log π and entropy summed over its axes."""
    return Independent(Normal(mean, log_std.exp()), 1)


def step(modules, optimiser, loss, max_grad_norm):
    """Backward, clip the joint norm of all gradients, step; -> the norm before clipping.

    No limit: max_grad_norm None.
    """
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    parameters = [p for module in modules for p in module.parameters()]
    norm = clip_grad_norm_(parameters, math.inf if max_grad_norm is None else max_grad_norm)
    optimiser.step()
    return norm


def scalars(losses):
    """A dict of tensors as a dict of floats."""
    return {name: x.item() for name, x in losses.items()}


# On-policy.


class DeepRnnLayer(nn.Module):
    """Several GRU layers: h (B, layers, H), all of them times m_t before step t."""

    def __init__(self, hidden, layers):
        super().__init__()
        self.rnn = orthogonal_gru(hidden, hidden, num_layers=layers)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x, h, masks):
        outputs = []
        for x_t, mask in zip(x, masks, strict=True):
            start = (h * mask.unsqueeze(-1)).transpose(0, 1).contiguous()
            output, last = self.rnn(x_t.unsqueeze(0), start)
            h = last.transpose(0, 1)
            outputs.append(output)
        return self.norm(torch.cat(outputs)), h


class LogStd(nn.Module):
    """A parameter of shape (n, 1), as checkpoints have it."""

    def __init__(self, n):
        super().__init__()
        self._bias = nn.Parameter(torch.zeros(n, 1))

    def forward(self):
        return self._bias.squeeze(-1)


class GaussianHead(nn.Module):
    def __init__(self, hidden, n):
        super().__init__()
        self.fc_mean = linear(hidden, n, 0.01)
        self.logstd = LogStd(n)

    def forward(self, x):
        return gaussian(self.fc_mean(x), self.logstd())


class ActionLayer(nn.Module):
    """The heads; `evaluate` -> log π (..., 1 or K) and entropy (...) or (..., K)."""

    def __init__(self, hidden, action):
        super().__init__()
        self.kind, size = action
        if self.kind == "discrete":
            self.action_out = CategoricalHead(hidden, size)
        elif self.kind == "box":
            self.action_out = GaussianHead(hidden, size)
        elif self.kind == "multi":
            self.action_outs = nn.ModuleList(CategoricalHead(hidden, n) for n in size)
        else:
            raise ValueError(f"unknown action {self.kind!r}")

    def evaluate(self, x, action, available=None):
        if available is not None and self.kind != "discrete":
            raise ValueError(f"no mask of available actions for {self.kind!r}")
        if self.kind == "multi":
            dists = [categorical(head(x)) for head in self.action_outs]
            log_prob = [dist.log_prob(action[..., k]) for k, dist in enumerate(dists)]
            return torch.stack(log_prob, -1), torch.stack([d.entropy() for d in dists], -1)
        if self.kind == "box":
            dist = self.action_out(x)
            return dist.log_prob(action).unsqueeze(-1), dist.entropy()
        dist = categorical(self.action_out(x), available)
        return dist.log_prob(action.squeeze(-1)).unsqueeze(-1), dist.entropy()


def widths(hidden, layer_n):
    """Of 1 + layer_n hidden layers."""
    return (hidden,) * (1 + layer_n)


class Actor(Trunk):
    """π(a | o). `action`: ("discrete", n), ("box", n) or ("multi", (n₁, n₂, ...))."""

    def __init__(
        self,
        obs_dim,
        action,
        hidden=64,
        layer_n=1,
        activation="relu",
        recurrent=False,
        feature_norm=True,
    ):
        super().__init__(obs_dim, widths(hidden, layer_n), activation, recurrent, feature_norm)
        self.act = ActionLayer(hidden, action)

    def evaluate(self, obs, h, action, masks, available=None):
        """-> (log_prob, entropy, last h).

        discrete: action int (..., 1), log_prob (..., 1), entropy (...)
        box:      action (..., n), log_prob (..., 1), entropy (...), both summed over n
        multi:    action int (..., K), log_prob and entropy (..., K)
        """
        x, h = self.features(obs, h, masks)
        return *self.act.evaluate(x, action, available), h


class Critic(networks.Critic):
    """V (..., 1) and the last h."""

    def __init__(
        self,
        in_dim,
        hidden=64,
        layer_n=1,
        activation="relu",
        recurrent=False,
        feature_norm=True,
    ):
        super().__init__(in_dim, widths(hidden, layer_n), activation, recurrent, feature_norm)


def entropy_bonus(entropy, active, over_heads="mean"):
    """Σ(H·active) / Σactive; several heads: the mean, or the sum, of theirs. active (..., 1)."""
    if over_heads not in ("mean", "sum"):
        raise ValueError(f"unknown over_heads {over_heads!r}")
    if entropy.ndim < active.ndim:
        entropy = entropy.unsqueeze(-1)
    total = masked_mean(entropy, active)
    return total / entropy.shape[-1] if over_heads == "mean" else total


def onpolicy_losses(
    actor,
    critic,
    batch,
    clip,
    huber_delta=10.0,
    clip_value=True,
    value_norm=None,
    entropy_over_heads="mean",
):
    """The terms of `onpolicy_update` as tensors: policy, value, entropy."""
    active = batch["active"]
    log_prob, entropy, _ = actor.evaluate(
        batch["obs"],
        batch.get("actor_h"),
        batch["action"],
        batch.get("masks"),
        batch.get("available"),
    )
    value, _ = critic(batch["critic_in"], batch.get("critic_h"), batch.get("masks"))
    policy, _ = policy_loss(log_prob, batch["log_prob"], batch["advantage"], clip, active)
    target = batch["return"]
    if value_norm is not None:
        value_norm.update(target)
        target = value_norm.normalize(target)
    return {
        "policy": policy,
        "value": value_loss(value, batch["value"], target, clip, huber_delta, clip_value, active),
        "entropy": entropy_bonus(entropy, active, entropy_over_heads),
    }


def onpolicy_update(
    actor,
    critic,
    actor_optimiser,
    critic_optimiser,
    batch,
    clip,
    value_coef,
    entropy_coef,
    max_grad_norm,
    huber_delta,
    clip_value,
    value_norm,
    entropy_over_heads="mean",
):
    """One minibatch: the actor steps on L_π - c_ent H, the critic on c_v L_V, each clipped alone.

    `batch`: obs, critic_in, action, log_prob (old), value (old, normalised units), return (raw),
    advantage (normalised), active (..., 1), optionally available. Rows are (B, N, ·); recurrent
    (T, B·N, ·) with masks (T, B·N, 1) and actor_h, critic_h (B·N, H).
    huber_delta None is e²/2. Both forward passes come before either step.
    -> floats policy, value, entropy, actor_grad_norm, critic_grad_norm (unclipped).
    """
    losses = onpolicy_losses(
        actor, critic, batch, clip, huber_delta, clip_value, value_norm, entropy_over_heads
    )
    actor_loss = losses["policy"] - entropy_coef * losses["entropy"]
    critic_loss = value_coef * losses["value"]
    losses["actor_grad_norm"] = step([actor], actor_optimiser, actor_loss, max_grad_norm)
    losses["critic_grad_norm"] = step([critic], critic_optimiser, critic_loss, max_grad_norm)
    return scalars(losses)


# XuanCe, December 2023.


def xuance_layers(in_dim, sizes, activation, normalize):
    """(Linear, activation, LayerNorm if normalize) per size, orthogonal of gain 1."""
    layers = []
    for size in sizes:
        layers += [linear(in_dim, size, 1.0), ACTIVATIONS[activation]()]
        if normalize:
            layers.append(nn.LayerNorm(size))
        in_dim = size
    return nn.Sequential(*layers), in_dim


class XuanceNet(nn.Module):
    """out = head([representation(x), id]), id the agent's one-hot; no id when n_agents is 0.

    x (..., N, in) -> (..., N, out). Recurrent: x (B, N, T, in) -> (B, N, T, out), every (b, n) a
    sequence of its own from a zero state, and representation = LN(GRU(MLP(LN(x)))). Without
    `normalize` there is no LN anywhere.
    `log_std`, if given, is the initial value of a Gaussian's parameter (out,).
    """

    def __init__(
        self,
        in_dim,
        hidden,
        head_hidden,
        out_dim,
        n_agents=0,
        activation="relu",
        normalize=False,
        recurrent=False,
        log_std=None,
    ):
        super().__init__()
        self.n_agents = n_agents
        self.recurrent = recurrent
        self.normalize = normalize
        self.representation, width = xuance_layers(in_dim, hidden, activation, normalize)
        if recurrent:
            self.input_norm = nn.LayerNorm(in_dim) if normalize else nn.Identity()
            self.gru = orthogonal_gru(width, width, batch_first=True)
            self.gru_norm = nn.LayerNorm(width) if normalize else nn.Identity()
        self.head, width = xuance_layers(width + n_agents, head_hidden, activation, normalize)
        self.out = linear(width, out_dim, 1.0)
        self.log_std = None
        if log_std is not None:
            self.log_std = nn.Parameter(torch.full((out_dim,), float(log_std)))

    def features(self, x):
        if not self.recurrent:
            return self.representation(x)
        x = self.representation(self.input_norm(x))
        y, _ = self.gru(x.flatten(0, 1))
        return self.gru_norm(y).unflatten(0, x.shape[:2])

    def forward(self, x):
        x = self.features(x)
        if self.n_agents:
            ids = torch.eye(self.n_agents, dtype=x.dtype)
            if self.recurrent:
                ids = ids.unsqueeze(1)  # (N, 1, N): the same at every step
            x = torch.cat([x, ids.expand(*x.shape[:-1], self.n_agents)], -1)
        return self.out(self.head(x))

    def distribution(self, out, available=None):
        """π of an output: Gaussian where there is a log_std, else Categorical."""
        if self.log_std is not None:
            return gaussian(out, self.log_std)
        return categorical(out, available)


def clipped_surrogate(log_prob, old_log_prob, advantage, clip):
    """min(ρA, clip(ρ, 1±c)A), ρ = exp(log π - log π_old); log-probs (...), A (..., 1)."""
    ratio = (log_prob - old_log_prob).exp().unsqueeze(-1)
    return torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def xuance_value_loss(
    value,
    old_value,
    target,
    value_clip,
    use_huber,
    huber_delta,
    use_value_clip,
    value_norm,
    mask,
):
    """Σ max(ℓ(V), ℓ(V_clip)) m / Σm, V_clip = V_old + clip(V - V_old, ±c); unclipped: ℓ(V) alone.

    ℓ is huber, or e² without the half. `value_norm` learns the target and then scales it, clipped
    or not: the network's values are in normalised units.
    """

    def penalty(e):
        return huber(e, huber_delta) if use_huber else e**2

    if value_norm is not None:
        value_norm.update(target)
        target = value_norm.normalize(target)
    loss = penalty(value - target)
    if use_value_clip:
        clipped = old_value + (value - old_value).clamp(-value_clip, value_clip)
        loss = torch.max(loss, penalty(clipped - target))
    return masked_mean(loss, mask)


def xuance_losses(
    actor,
    critic,
    batch,
    clip,
    value_clip,
    use_huber=True,
    huber_delta=10.0,
    use_value_clip=True,
    value_norm=None,
):
    """The terms of `xuance_update` as tensors: policy, value, entropy."""
    mask = batch["agent_mask"]
    dist = actor.distribution(actor(batch["obs"]), batch.get("available"))
    surrogate = clipped_surrogate(
        dist.log_prob(batch["action"]), batch["log_prob"], batch["advantage"] * mask, clip
    )
    return {
        "policy": -surrogate.sum(-2).mean(),
        "value": xuance_value_loss(
            critic(batch["critic_in"]),
            batch["value"],
            batch["return"],
            value_clip,
            use_huber,
            huber_delta,
            use_value_clip,
            value_norm,
            mask,
        ),
        "entropy": (dist.entropy().unsqueeze(-1) * mask).mean(),
    }


def xuance_recurrent_losses(
    actor,
    critic,
    batch,
    clip,
    value_clip,
    use_huber=True,
    huber_delta=10.0,
    use_value_clip=True,
    value_norm=None,
):
    """The terms of recurrent `xuance_update` as tensors: policy, value, entropy."""
    available = batch.get("available")
    if available is not None:
        available = available[:, :, :-1]
    dist = actor.distribution(actor(batch["obs"])[:, :, :-1], available)
    # (B, T, 1) -> (B, N, T, 1): the denominators count every agent.
    filled = batch["filled"].unsqueeze(1).expand_as(batch["advantage"])
    surrogate = clipped_surrogate(
        dist.log_prob(batch["action"]), batch["log_prob"], batch["advantage"], clip
    )
    return {
        "policy": -masked_mean(surrogate, filled),
        "value": xuance_value_loss(
            critic(batch["critic_in"])[:, :, :-1],
            batch["value"],
            batch["return"],
            value_clip,
            use_huber,
            huber_delta,
            use_value_clip,
            value_norm,
            filled,
        ),
        "entropy": masked_mean(dist.entropy().unsqueeze(-1), filled),
    }


def xuance_step(actor, critic, optimiser, losses, vf_coef, ent_coef, grad_clip):
    """L = L_a + c_v L_c - c_ent L_e: one backward, one norm over both nets, one step."""
    total = losses["policy"] + vf_coef * losses["value"] - ent_coef * losses["entropy"]
    grad_norm = step([actor, critic], optimiser, total, grad_clip)
    return scalars({**losses, "total": total, "grad_norm": grad_norm})


def xuance_update(
    actor,
    critic,
    optimiser,
    batch,
    clip,
    value_clip,
    vf_coef,
    ent_coef,
    grad_clip,
    use_huber,
    huber_delta,
    use_value_clip,
    value_norm=None,
    recurrent=False,
):
    """One feed-forward minibatch: a sum over agents for the actor, means for the rest.

    L_a = -mean_B Σ_N min(ρÂ, clip(ρ, 1±c)Â), Â = A·mask;  L_e = mean_{B,N}(H·mask)
    `batch`: obs (B, N, o), critic_in (B, N, c), action int (B, N) or float (B, N, A), log_prob
    (B, N), value, return, advantage, agent_mask (B, N, 1), optionally available (B, N, A).
    `recurrent`: one minibatch of whole episodes, every term Σ(x·filled) / Σfilled over B, N and T;
    obs (B, N, T+1, o), critic_in (B, N, T+1, c), action int (B, N, T) or float (B, N, T, A),
    log_prob (B, N, T), value, return, advantage (B, N, T, 1), filled (B, T, 1), optionally
    available (B, N, T+1, A). The last step is not used. `value_norm` learns the returns of unfilled
    steps as well, as the reference does.
    -> floats policy, value, entropy, total, grad_norm (unclipped). No clipping: grad_clip None.
    """
    losses_of = xuance_recurrent_losses if recurrent else xuance_losses
    losses = losses_of(
        actor, critic, batch, clip, value_clip, use_huber, huber_delta, use_value_clip, value_norm
    )
    return xuance_step(actor, critic, optimiser, losses, vf_coef, ent_coef, grad_clip)


# What some published versions compute instead, to show that it differs.


def tensorflow_value_target(batch):
    """The critic's target in the TensorFlow learner: the old values, where the returns belong."""
    return batch["value"]


def mindspore_clip(clip):
    """The ratio's clip range in the MindSpore learner: half of what is configured."""
    return clip * 0.5


def unnormalised_no_clip_value_loss(value, target, value_norm, mask):
    """The torch learner without value clip: V ← normalise(V), compared with the raw target."""
    value_norm.update(target)
    return masked_mean((value_norm.normalize(value) - target) ** 2, mask)
