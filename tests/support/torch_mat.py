"""The Multi-Agent Transformer and its variants in PyTorch: what the JAX networks must match.

The modules of plain MAT are the baseline's own; those of the variants follow its names.
B batch, N agents, O observation, A actions, D embedding.

Every model offers the same three methods:
    evaluate(obs, action, available) -> (log_prob, value, entropy)   one parallel pass
    act_with(obs, action, available) -> (log_prob, value, greedy)    agent by agent, actions given
    greedy(obs, available) -> action                                 agent by agent, best action
Discrete: action int (B, N, 1), log_prob and entropy (B, N, 1).
Continuous: action (B, N, A), log_prob and entropy per dimension (B, N, A); `available` is ignored.
"""

import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.nn.functional import one_hot

from benchmarks.torch_baseline.mat_networks import (
    STATE_DIM,
    Decoder,
    Encoder,
    action_encoder,
    input_encoder,
    output_head,
)

MASKED_LOGIT = -1e10


def std(log_std):
    """σ = ½ sigmoid(log_std)."""
    return 0.5 * torch.sigmoid(log_std)


class ActingEncoder(Encoder):
    """The encoder with a second head: logits or mean = act_head(rep)."""

    def __init__(self, obs_dim, action_dim, n_agent, n_block, n_embd, n_head, discrete):
        super().__init__(obs_dim, n_agent, n_block, n_embd, n_head)
        self.act_head = output_head(n_embd, action_dim)
        if not discrete:
            self.log_std = nn.Parameter(torch.ones(action_dim))

    def forward(self, obs):
        value, rep = super().forward(obs)
        return value, self.act_head(rep)


class ValuedDecoder(Decoder):
    """The decoder with rep = obs_encoder(obs), and value = val_head on the output of its blocks."""

    def __init__(self, obs_dim, action_dim, n_agent, n_block, n_embd, n_head, discrete):
        super().__init__(obs_dim, action_dim, n_agent, n_block, n_embd, n_head, discrete)
        self.val_head = output_head(n_embd, 1)

    def forward(self, tokens, obs):
        x = self.trunk(tokens, self.obs_encoder(obs))
        return self.head(x), self.val_head(x)


class GruEncoder(nn.Module):
    """rep = GRU(LN(obs_encoder(obs))) along the agents;  value = head(rep)."""

    def __init__(self, obs_dim, n_embd):
        super().__init__()
        self.state_encoder = input_encoder(STATE_DIM, n_embd)
        self.obs_encoder = input_encoder(obs_dim, n_embd)
        self.ln = nn.LayerNorm(n_embd)
        self.gru = nn.GRU(n_embd, n_embd, num_layers=2, batch_first=True)
        self.head = output_head(n_embd, 1)

    def forward(self, obs):
        rep, _ = self.gru(self.ln(self.obs_encoder(obs)))
        return self.head(rep), rep


class GruDecoder(nn.Module):
    """logits or mean = head(GRU(LN(action_encoder(tokens) + rep))) along the agents."""

    def __init__(self, obs_dim, action_dim, n_embd, discrete):
        super().__init__()
        if not discrete:
            self.log_std = nn.Parameter(torch.ones(action_dim))
        self.action_encoder = action_encoder(action_dim, n_embd, discrete)
        self.obs_encoder = input_encoder(obs_dim, n_embd)
        self.ln = nn.LayerNorm(n_embd)
        self.gru = nn.GRU(n_embd, n_embd, num_layers=2, batch_first=True)
        self.head = output_head(n_embd, action_dim)

    def forward(self, tokens, rep):
        x, _ = self.gru(self.ln(self.action_encoder(tokens) + rep))
        return self.head(x)


class Policy(nn.Module):
    """Acting and evaluating, for a model that defines `encode`, `decode` and `log_std`.

    encode(obs) -> context;  decode(context, tokens, obs) -> (logits or mean (B, N, A), value).
    """

    def __init__(self, action_dim, n_agent, action_type):
        super().__init__()
        if action_type not in ("Discrete", "Continuous"):
            raise ValueError(f"unknown action_type {action_type!r}")
        self.action_dim = action_dim
        self.n_agent = n_agent
        self.discrete = action_type == "Discrete"

    def embed(self, action, dtype):
        """What the next agent reads of an action: its one-hot, or the raw sample."""
        if not self.discrete:
            return action.to(dtype)
        return one_hot(action.long().squeeze(-1), self.action_dim).to(dtype)

    def shift(self, embedded):
        """Token 0 = start, token i = the action of agent i-1; (B, N, A) -> (B, N, A or A+1)."""
        tokens = torch.zeros_like(embedded)
        tokens[:, 1:] = embedded[:, :-1]
        if not self.discrete:
            return tokens
        start = torch.zeros_like(embedded[..., :1])
        start[:, 0] = 1
        return torch.cat([start, tokens], dim=-1)

    def distribution(self, out, available):
        """Categorical of the logits, -1e10 where unavailable; or Normal(mean, σ) per dimension."""
        if not self.discrete:
            return Normal(out, std(self.log_std))
        if available is not None:
            out = out.masked_fill(available == 0, MASKED_LOGIT)
        return Categorical(logits=out)

    def log_prob(self, dist, action):
        if not self.discrete:
            return dist.log_prob(action)
        return dist.log_prob(action.squeeze(-1)).unsqueeze(-1)

    def mode(self, dist):
        return dist.probs.argmax(-1, keepdim=True) if self.discrete else dist.mean

    def evaluate(self, obs, action, available=None):
        tokens = self.shift(self.embed(action, obs.dtype))
        out, value = self.decode(self.encode(obs), tokens, obs)
        dist = self.distribution(out, available)
        entropy = dist.entropy()
        if self.discrete:
            entropy = entropy.unsqueeze(-1)
        return self.log_prob(dist, action), value, entropy

    @torch.no_grad()
    def unroll(self, obs, available, recorded=None):
        """Decode once per agent, the next token from `recorded` or else from the greedy choice.

        The value is that of the last pass, which matters where it depends on the actions.
        """
        context = self.encode(obs)
        written = obs.new_zeros(obs.shape[0], self.n_agent, self.action_dim)
        log_probs, choices = [], []
        for i in range(self.n_agent):
            out, value = self.decode(context, self.shift(written), obs)
            dist = self.distribution(out[:, i], None if available is None else available[:, i])
            choice = self.mode(dist)
            action = choice if recorded is None else recorded[:, i]
            log_probs.append(self.log_prob(dist, action))
            choices.append(choice)
            written[:, i] = self.embed(action, obs.dtype)
        return torch.stack(log_probs, 1), value, torch.stack(choices, 1)

    def act_with(self, obs, action, available=None):
        return self.unroll(obs, available, action)

    def greedy(self, obs, available=None):
        return self.unroll(obs, available)[2]


class MultiAgentTransformer(Policy):
    """MAT: an encoder with the value, an autoregressive decoder with the policy."""

    def __init__(
        self,
        obs_dim,
        action_dim,
        n_agent,
        n_block,
        n_embd,
        n_head,
        action_type="Discrete",
        dec_actor=False,
        share_actor=False,
    ):
        super().__init__(action_dim, n_agent, action_type)
        shape = (n_agent, n_block, n_embd, n_head)
        self.encoder = Encoder(obs_dim, *shape)
        self.decoder = Decoder(obs_dim, action_dim, *shape, self.discrete, dec_actor, share_actor)

    @property
    def log_std(self):
        return self.decoder.log_std

    def encode(self, obs):
        return self.encoder(obs)

    def decode(self, context, tokens, obs):
        value, rep = context
        return self.decoder(tokens, rep, obs), value


class MatEncoder(Policy):
    """Encoder only: no agent reads another's action."""

    def __init__(
        self, obs_dim, action_dim, n_agent, n_block, n_embd, n_head, action_type="Discrete"
    ):
        super().__init__(action_dim, n_agent, action_type)
        shape = (n_agent, n_block, n_embd, n_head)
        self.encoder = ActingEncoder(obs_dim, action_dim, *shape, self.discrete)

    @property
    def log_std(self):
        return self.encoder.log_std

    def encode(self, obs):
        return self.encoder(obs)

    def decode(self, context, tokens, obs):
        value, out = context
        return out, value


class MatDecoder(Policy):
    """Decoder only: the value of agent i depends on the actions of the agents before it."""

    def __init__(
        self, obs_dim, action_dim, n_agent, n_block, n_embd, n_head, action_type="Discrete"
    ):
        super().__init__(action_dim, n_agent, action_type)
        shape = (n_agent, n_block, n_embd, n_head)
        self.decoder = ValuedDecoder(obs_dim, action_dim, *shape, self.discrete)

    @property
    def log_std(self):
        return self.decoder.log_std

    def encode(self, obs):
        return None

    def decode(self, context, tokens, obs):
        return self.decoder(tokens, obs)


class MatGru(Policy):
    """Two-layer GRUs along the agents instead of attention; n_block and n_head have no effect."""

    def __init__(
        self, obs_dim, action_dim, n_agent, n_block, n_embd, n_head, action_type="Discrete"
    ):
        super().__init__(action_dim, n_agent, action_type)
        self.encoder = GruEncoder(obs_dim, n_embd)
        self.decoder = GruDecoder(obs_dim, action_dim, n_embd, self.discrete)

    @property
    def log_std(self):
        return self.decoder.log_std

    def encode(self, obs):
        return self.encoder(obs)

    def decode(self, context, tokens, obs):
        value, rep = context
        return self.decoder(tokens, rep), value


@torch.no_grad()
def perturb(model, seed, scale=0.3):
    """Add noise to every parameter: at the initial gain of 0.01 a wrong net is hardly visible.

    Training never moves the state encoder, unless the network reads the state alone.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if "state_encoder" not in name:
            parameter.add_(scale * noise.to(parameter.dtype))
    return model
