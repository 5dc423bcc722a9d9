"""The learning core of the PyTorch references: returns, value normalisation, loss and update.

T steps, E environments, N agents, B = T·E rows. Plain loops where a loop is the definition.
"""

import numpy as np
import torch

ADVANTAGE_EPS = 1e-5


def gae_loop(reward, value, next_value, terminated, truncated, gamma, lam, time_limit):
    """Generalised advantage and return, backwards over t; -> (g, g + value), each (T, E, N).

    δ_t = r_t + γ b_t V(next_t) - V_t;  g_t = δ_t + γλ c_t g_{t+1}
    bootstrap: b = 1-terminated, c = (1-terminated)(1-truncated)
    terminal:  b = c = (1-terminated)(1-truncated)
    zero_gae:  as terminal, then g_t = 0 where truncated
    `next_value[t]` is V of what step t led to, before any reset.
    """
    if time_limit not in ("bootstrap", "terminal", "zero_gae"):
        raise ValueError(f"unknown time_limit {time_limit!r}")
    advantage = np.zeros_like(reward)
    g = np.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        # (E,) -> (E, 1): the agents of an environment end together.
        goes_on = 1.0 - terminated[t][:, None]
        in_time = 1.0 - truncated[t][:, None]
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
        for e in range(reward.shape[1]):
            if terminated[t, e]:
                future = 0.0
            elif truncated[t, e] or t == last:
                future = next_value[t, e]
            else:
                future = returns[t + 1, e]
            returns[t, e] = reward[t, e] + gamma * future
    return returns


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

    def penalty(e):
        return e**2 / 2 if huber_delta is None else huber(e, huber_delta)

    loss = penalty(target - value)
    if use_clipped_value:
        clipped = old_value + (value - old_value).clamp(-clip, clip)
        loss = torch.max(loss, penalty(target - clipped))
    return masked_mean(loss, active)


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
