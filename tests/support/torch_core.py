"""The learning core of the PyTorch references: returns, value normalisation, loss and update.

T steps, E environments, N agents, B = T·E rows. Plain loops where a loop is the definition.
"""

import numpy as np
import torch

from benchmarks.torch_baseline.losses import (
    ValueNorm,
    masked_mean,
    normalise_advantage,
    policy_loss,
    value_loss,
)


def gae_loop(reward, value, next_value, terminated, truncated, gamma, lam, time_limit):
    """Generalised advantage and return, backwards over t; -> (g, g + value), each (T, E, N).

    δ_t = r_t + γ b_t V(next_t) - V_t;  g_t = δ_t + γλ c_t g_{t+1}
    bootstrap: b = 1-terminated, c = (1-terminated)(1-truncated)
    terminal:  b = c = (1-terminated)(1-truncated)
    zero_gae:  as terminal, then g_t = 0 where truncated
    `next_value[t]` is V of what step t led to, before any reset; `terminated` is (T, E, N),
    `truncated` (T, E).
    """
    if time_limit not in ("bootstrap", "terminal", "zero_gae"):
        raise ValueError(f"unknown time_limit {time_limit!r}")
    advantage = np.zeros_like(reward)
    g = np.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        goes_on = 1.0 - terminated[t]
        in_time = 1.0 - truncated[t][:, None]  # (E,) -> (E, 1): time is up for all agents at once
        kept = goes_on * in_time
        bootstrap = goes_on if time_limit == "bootstrap" else kept
        delta = reward[t] + gamma * bootstrap * next_value[t] - value[t]
        g = delta + gamma * lam * kept * g
        if time_limit == "zero_gae":
            g = g * in_time
        advantage[t] = g
    return advantage, advantage + value


def monte_carlo_loop(reward, next_value, terminated, truncated, gamma):
    """R_t = r_t + γ (1-terminated_t)(V(next_t) if truncated_t or t = T-1 else R_{t+1})."""
    returns = np.zeros_like(reward)
    last = len(reward) - 1
    for t in reversed(range(len(reward))):
        for e, i in np.ndindex(reward.shape[1:]):
            if terminated[t, e, i]:
                future = 0.0
            elif truncated[t, e] or t == last:
                future = next_value[t, e, i]
            else:
                future = returns[t + 1, e, i]
            returns[t, e, i] = reward[t, e, i] + gamma * future
    return returns


class PopArt(ValueNorm):
    """ValueNorm that rewrites the linear head f(x) = W x + b, so that σ f(x) + μ stays as it was.

    W ← W σ_old / σ_new;  b ← (σ_old b + μ_old - μ_new) / σ_new
    """

    def __init__(self, weight, bias, beta=0.99999, epsilon=1e-5):
        super().__init__(beta, epsilon, weight.dtype)
        self.weight = weight  # (1, H)
        self.bias = bias  # (1,)

    def __call__(self, x):
        return x @ self.weight.T + self.bias

    @torch.no_grad()
    def update(self, x):
        old_mean, old_std = self.moments()
        super().update(x)
        mean, std = self.moments()
        # In place, so that an optimiser which holds the two tensors keeps them and its moments.
        self.weight.mul_(old_std / std)
        self.bias.copy_((old_std * self.bias + old_mean - mean) / std)


def huber(e, delta):
    """e²/2 where |e| ≤ δ, else δ(|e| - δ/2)."""
    return torch.where(e.abs() <= delta, e**2 / 2, delta * (e.abs() - delta / 2))


def mat_loss(
    log_prob,
    value,
    entropy,
    batch,
    clip,
    value_coef,
    entropy_coef,
    huber_delta,
    use_clipped_value,
    value_norm,
    active,
):
    """L = L_π - c_ent H + c_v L_V; -> dict of total, policy, value, entropy, ratio_mean.

    `batch` has "log_prob" (old), "advantage" (already normalised), "value" (old, normalised units)
    and "return" (raw units). `value_norm`, if any, first learns the returns, then scales them.
    `active` is (B, N, 1), or None for plain means.
    """
    target = batch["return"]
    if value_norm is not None:
        value_norm.update(target)
        target = value_norm.normalize(target)
    policy, ratio = policy_loss(log_prob, batch["log_prob"], batch["advantage"], clip, active)
    critic = value_loss(value, batch["value"], target, clip, huber_delta, use_clipped_value, active)
    bonus = masked_mean(entropy, active)
    return {
        "total": policy - entropy_coef * bonus + value_coef * critic,
        "policy": policy,
        "value": critic,
        "entropy": bonus,
        "ratio_mean": ratio.mean(),
    }


def mat_update(
    model,
    optimiser,
    batch,
    epochs,
    num_minibatches,
    permutations,
    *,
    clip,
    value_coef=1.0,
    entropy_coef=0.01,
    huber_delta=10.0,
    use_clipped_value=True,
    value_norm=None,
    max_grad_norm=10.0,
    normalise=True,
):
    """Every epoch: permute rows, cut minibatches, and per minibatch one clipped Adam step.

    `batch` has rows (B, N, ·): obs, action, log_prob, value, return, advantage, and optionally
    available and active. `permutations` is (epochs, B); rows left over by the cut are dropped.
    Advantages are normalised here, once, unless `normalise` is False.
    -> a list of dicts of floats, one per minibatch, as in `mat_loss` plus grad_norm (unclipped).
    """
    batch = {name: x for name, x in batch.items() if x is not None}
    if normalise:
        advantage = normalise_advantage(batch["advantage"], batch.get("active"))
        batch = {**batch, "advantage": advantage}
    size = len(batch["obs"]) // num_minibatches
    history = []
    for epoch in range(epochs):
        order = torch.as_tensor(np.array(permutations[epoch]), dtype=torch.long)
        for k in range(num_minibatches):
            rows = order[k * size : (k + 1) * size]
            part = {name: x[rows] for name, x in batch.items()}
            output = model.evaluate(part["obs"], part["action"], part.get("available"))
            loss = mat_loss(
                *output,
                part,
                clip,
                value_coef,
                entropy_coef,
                huber_delta,
                use_clipped_value,
                value_norm,
                part.get("active"),
            )
            # To None, not to zero: Adam must skip the parameters the loss does not reach.
            optimiser.zero_grad(set_to_none=True)
            loss["total"].backward()
            grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
            optimiser.step()
            loss["grad_norm"] = grad_norm
            history.append({name: x.item() for name, x in loss.items()})
    return history
