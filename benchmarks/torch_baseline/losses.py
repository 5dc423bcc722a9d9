"""Returns, normalisation of values, and the clipped losses.

T steps, E worlds, N agents. The parity tests compare jmarl's with these.
"""

import torch
from torch.nn.functional import huber_loss

ADVANTAGE_EPS = 1e-5


class ValueNorm:
    """Debiased running mean and variance of the returns.

    μ̃ ← β μ̃ + (1-β) mean(x);  s̃ ← β s̃ + (1-β) mean(x²);  d ← β d + (1-β), all from 0
    mean = μ̃ / max(d, ε);  var = max(s̃ / max(d, ε) - mean², 0.01)
    """

    def __init__(self, beta=0.99999, epsilon=1e-5, dtype=torch.float32):
        self.beta = beta
        self.epsilon = epsilon
        self.running_mean = torch.zeros(1, dtype=dtype)
        self.running_mean_sq = torch.zeros(1, dtype=dtype)
        self.debiasing_term = torch.zeros((), dtype=dtype)

    def moments(self):
        """(mean, √var), each (1,)."""
        d = self.debiasing_term.clamp(min=self.epsilon)
        mean = self.running_mean / d
        var = (self.running_mean_sq / d - mean**2).clamp(min=1e-2)
        return mean, var.sqrt()

    @torch.no_grad()
    def update(self, x):
        """Average over every entry of x (..., 1), active or not."""
        x = x.reshape(-1, 1).to(self.running_mean.dtype)
        # A Python float: 1-β in float32 is 0.1 % off.
        step = 1.0 - self.beta
        self.running_mean = self.beta * self.running_mean + step * x.mean(0)
        self.running_mean_sq = self.beta * self.running_mean_sq + step * (x**2).mean(0)
        self.debiasing_term = self.beta * self.debiasing_term + step

    def normalize(self, x):
        """(x - mean) / √var."""
        mean, std = self.moments()
        return (x - mean) / std

    def denormalize(self, x):
        """x √var + mean."""
        mean, std = self.moments()
        return x * std + mean


def gae(reward, value, next_value, truncated, gamma, gae_lambda, time_limit="bootstrap"):
    """Generalised advantage and return, backwards over t; -> (g, g + value), each (T, E, N).

    δ_t = r_t + γ V(next_t) - V_t;  g_t = δ_t + γλ g_{t+1}, the latter not where truncated.
    All worlds are truncated together: `truncated` is T booleans. Time limits as in
    `jmarl.learning.returns`.
    """
    cut = [t for t, ends in enumerate(truncated) if ends]
    if time_limit != "bootstrap" and cut:
        next_value = next_value.index_fill(0, torch.tensor(cut), 0.0)
    advantage = reward + gamma * next_value - value
    if time_limit == "zero_gae" and cut:
        advantage.index_fill_(0, torch.tensor(cut), 0.0)
    for t in range(len(reward) - 2, -1, -1):
        if not truncated[t]:
            advantage[t].add_(advantage[t + 1], alpha=gamma * gae_lambda)
    return advantage, advantage + value


def masked_mean(x, active):
    """Σ(x·active) / Σactive, or the plain mean without a mask.

    The denominator counts agents: an x with more dimensions per agent is summed over them.
    """
    return x.mean() if active is None else (x * active).sum() / active.sum()


def policy_loss(log_prob, old_log_prob, advantage, clip, active):
    """-Σ_d min(ρA, clip(ρ, 1±ε)A), ρ = exp(log π - log π_old) per dimension; -> (loss, ρ)."""
    ratio = (log_prob - old_log_prob).exp()
    surrogate = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    return -masked_mean(surrogate.sum(-1, keepdim=True), active), ratio


def value_loss(value, old_value, target, clip, huber_delta, use_clipped_value, active):
    """max(ℓ(target - V), ℓ(target - V_clip)), V_clip = V_old + clip(V - V_old, ±ε).

    ℓ is huber, or e²/2 when huber_delta is None. Everything is in normalised units.
    """

    def penalty(value):
        if huber_delta is None:
            return (target - value) ** 2 / 2
        return huber_loss(value, target, reduction="none", delta=huber_delta)

    loss = penalty(value)
    if use_clipped_value:
        clipped = old_value + (value - old_value).clamp(-clip, clip)
        loss = torch.max(loss, penalty(clipped))
    return masked_mean(loss, active)


def normalise_advantage(advantage, active=None):
    """(A - μ) / (σ + 1e-5), μ and σ (ddof 0) over the active entries of the whole buffer.

    Takes arrays or tensors. Inactive entries do not count, but are shifted and scaled too.
    """
    if active is None:
        active = advantage * 0 + 1
    count = active.sum()
    mean = (advantage * active).sum() / count
    std = (((advantage - mean) ** 2 * active).sum() / count) ** 0.5
    return (advantage - mean) / (std + ADVANTAGE_EPS)
