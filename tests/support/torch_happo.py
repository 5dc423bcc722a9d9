"""HAPPO in PyTorch, after HARL's equations: what the JAX version must match.

T steps, E worlds, N agents. Every agent's networks have its own sizes: nothing is padded here.
"""

import torch
from torch import nn

from tests.support import torch_actor_critic as reference
from tests.support.torch_core import masked_mean, value_loss
from tests.support.torch_distributions import continuous


class BoundedHead(nn.Module):
    """Means and logarithms of scales of a continuous distribution; scores of whole actions."""

    def __init__(self, gaussian, space, distribution):
        super().__init__()
        self.fc_mean, self.logstd = gaussian.fc_mean, gaussian.logstd
        self.space, self.distribution = space, distribution

    def forward(self, x):
        return _Bounded(self.distribution, self.fc_mean(x), self.logstd().exp(), self.space)


class _Bounded:
    def __init__(self, distribution, mean, scale, space):
        self.dist = continuous(distribution, mean, scale, space)
        self.space = space

    def log_prob(self, action):
        return self.dist.log_prob(action).sum(-1)

    def entropy(self):
        """Of beta: torch has it. Of tanh it has no closed form."""
        width = torch.tensor(self.space.high) - torch.tensor(self.space.low)
        if not isinstance(self.dist.base_dist, torch.distributions.Beta):
            return torch.zeros(self.dist.batch_shape[:-1], dtype=torch.float64)
        return (self.dist.base_dist.entropy() + width.log()).sum(-1)


def log_prob_and_entropy(actor, rows):
    """Of whole actions, both (..., 1): heads are summed."""
    state = rows["actor_h"][0] if "actor_h" in rows else None
    log_prob, entropy, _ = actor.evaluate(rows["obs"], state, rows["action"], rows.get("masks"))
    entropy = entropy.unsqueeze(-1) if entropy.ndim < log_prob.ndim else entropy
    return log_prob.sum(-1, keepdim=True), entropy.sum(-1, keepdim=True)


def minibatches(rows, epochs, count):
    """Every epoch: the worlds i, i + count, i + 2·count, … of all steps, for each i < count."""
    for _ in range(epochs):
        for i in range(count):
            yield {name: x[:, i::count] for name, x in rows.items()}


def actor_update(actor, optimiser, rows, factor, epochs, count, clip, entropy_coef, max_grad_norm):
    """-Σ M·min(ρA, clip(ρ, 1±ε)A)·m / Σm - c_H·H, for all epochs; -> every minibatch's mean ρ.

    `rows` (T, E, ·): obs, action, log_prob (old), advantage, active; with a GRU, which reads along
    T, masks and actor_h (1, E, H). `factor` (T, E, 1) is M.
    """
    ratios = []
    for part in minibatches(rows | {"factor": factor}, epochs, count):
        log_prob, entropy = log_prob_and_entropy(actor, part)
        ratio = (log_prob - part["log_prob"]).exp()
        clipped = ratio.clamp(1 - clip, 1 + clip)
        gain = torch.min(ratio * part["advantage"], clipped * part["advantage"])
        loss = -masked_mean(part["factor"] * gain, part["active"])
        loss = loss - entropy_coef * masked_mean(entropy, part["active"])
        reference.step([actor], optimiser, loss, max_grad_norm)
        ratios.append(masked_mean(ratio, part["active"]).item())
    return ratios


def critic_update(
    critic, optimiser, rows, epochs, count, clip, huber_delta, value_norm, max_grad_norm
):
    """The clipped value loss, for all epochs. `rows` (T, E, ·): critic_in, and of all N agents
    value, return and active (T, E, N)."""
    for part in minibatches(rows, epochs, count):
        state = part["critic_h"][0] if "critic_h" in part else None
        value = critic(part["critic_in"], state, part.get("masks"))[0].expand_as(part["value"])
        value_norm.update(part["return"])
        target = value_norm.normalize(part["return"])
        given = (value, part["value"], target, clip, huber_delta, True, part["active"])
        reference.step([critic], optimiser, value_loss(*given), max_grad_norm)


def happo_update(actors, optimisers, rows, order, **options):
    """Every actor in `order`; -> M before each of them (T, E, 1), and each one's mean ratios.

    `rows[i]` are agent i's, as in `actor_update`. M is the product, over the agents before, of
    exp(log π_new - log π_old) of their whole actions, 1 where they did not act.
    """
    factor = torch.ones_like(rows[order[0]]["active"])
    factors, ratios = [], []
    for i in order:
        factors.append(factor)
        with torch.no_grad():
            before, _ = log_prob_and_entropy(actors[i], rows[i])
        ratios.append(actor_update(actors[i], optimisers[i], rows[i], factor, **options))
        with torch.no_grad():
            after, _ = log_prob_and_entropy(actors[i], rows[i])
        acted = rows[i]["active"] > 0
        factor = factor * torch.where(acted, (after - before).exp(), torch.ones_like(factor))
    return factors, ratios
