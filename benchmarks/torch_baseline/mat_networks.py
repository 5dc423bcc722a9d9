"""The modules of the Multi-Agent Transformer.

They carry the parameter names of PKU-MARL/Multi-Agent-Transformer, dead weights and mask buffers
included, so that its checkpoints load. B batch, N agents, O observation, A actions, D embedding.
The parity tests compare jmarl's networks with these.
"""

import math

import torch
from torch import nn

# The reference replaces the global state by 37 zeros, which no computation here reads.
STATE_DIM = 37
ROOT2 = math.sqrt(2.0)


def linear(n_in, n_out, gain, bias=True):
    """Linear layer with orthogonal weight of the given gain and zero bias."""
    layer = nn.Linear(n_in, n_out, bias=bias)
    nn.init.orthogonal_(layer.weight, gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def input_encoder(n_in, n_embd):
    """GELU(W LN(x) + b)."""
    return nn.Sequential(nn.LayerNorm(n_in), linear(n_in, n_embd, ROOT2), nn.GELU())


def output_head(n_embd, n_out):
    """W₂ LN(GELU(W₁ x + b₁)) + b₂."""
    return nn.Sequential(
        linear(n_embd, n_embd, ROOT2),
        nn.GELU(),
        nn.LayerNorm(n_embd),
        linear(n_embd, n_out, 0.01),
    )


def block_mlp(n_embd):
    """W₂ GELU(W₁ x + b₁) + b₂, as wide as its input."""
    return nn.Sequential(linear(n_embd, n_embd, ROOT2), nn.GELU(), linear(n_embd, n_embd, 0.01))


def observation_actor(obs_dim, n_embd, action_dim):
    """The actor of MAT-Dec: an MLP of one agent's observation."""
    return nn.Sequential(
        nn.LayerNorm(obs_dim),
        linear(obs_dim, n_embd, ROOT2),
        nn.GELU(),
        nn.LayerNorm(n_embd),
        linear(n_embd, n_embd, ROOT2),
        nn.GELU(),
        nn.LayerNorm(n_embd),
        linear(n_embd, action_dim, 0.01),
    )


def action_encoder(action_dim, n_embd, discrete):
    """GELU(W token); a discrete token has a start entry before its one-hot and W no bias."""
    n_in = action_dim + 1 if discrete else action_dim
    return nn.Sequential(linear(n_in, n_embd, ROOT2, bias=not discrete), nn.GELU())


class SelfAttention(nn.Module):
    """proj(softmax(q kᵀ / √h) v) per head of width h; `masked` hides the later positions."""

    def __init__(self, n_embd, n_head, n_agent, masked):
        super().__init__()
        if n_embd % n_head:
            raise ValueError(f"n_embd {n_embd} is not a multiple of n_head {n_head}")
        self.n_head = n_head
        self.masked = masked
        self.key = linear(n_embd, n_embd, 0.01)
        self.query = linear(n_embd, n_embd, 0.01)
        self.value = linear(n_embd, n_embd, 0.01)
        self.proj = linear(n_embd, n_embd, 0.01)
        # One row and column too many, and present even where unmasked: checkpoints have it so.
        self.register_buffer("mask", torch.ones(1, 1, n_agent + 1, n_agent + 1).tril())

    def forward(self, key, value, query):
        k, v, q = (
            layer(x).unflatten(-1, (self.n_head, -1))
            for layer, x in ((self.key, key), (self.value, value), (self.query, query))
        )
        score = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[-1])
        if self.masked:
            length = query.shape[1]
            hidden = self.mask[..., :length, :length] == 0
            score = score.masked_fill(hidden, -math.inf)
        mixed = torch.einsum("bhij,bjhd->bihd", score.softmax(-1), v)
        return self.proj(mixed.flatten(-2))


class EncodeBlock(nn.Module):
    """x ← LN₁(x + Attn(x, x, x));  x ← LN₂(x + MLP(x)). Every agent sees every agent."""

    def __init__(self, n_embd, n_head, n_agent):
        super().__init__()
        self.ln1 = nn.LayerNorm(n_embd)
        self.ln2 = nn.LayerNorm(n_embd)
        self.attn = SelfAttention(n_embd, n_head, n_agent, masked=False)
        self.mlp = block_mlp(n_embd)

    def forward(self, x):
        x = self.ln1(x + self.attn(x, x, x))
        return self.ln2(x + self.mlp(x))


class DecodeBlock(nn.Module):
    """x ← LN₁(x + Attn₁(x, x, x));  x ← LN₂(rep + Attn₂(x, x, query=rep));  x ← LN₃(x + MLP(x)).

    The query and the residual of the second attention are the observation's, not the action's.
    """

    def __init__(self, n_embd, n_head, n_agent):
        super().__init__()
        self.ln1 = nn.LayerNorm(n_embd)
        self.ln2 = nn.LayerNorm(n_embd)
        self.ln3 = nn.LayerNorm(n_embd)
        self.attn1 = SelfAttention(n_embd, n_head, n_agent, masked=True)
        self.attn2 = SelfAttention(n_embd, n_head, n_agent, masked=True)
        self.mlp = block_mlp(n_embd)

    def forward(self, x, rep):
        x = self.ln1(x + self.attn1(x, x, x))
        x = self.ln2(rep + self.attn2(key=x, value=x, query=rep))
        return self.ln3(x + self.mlp(x))


class Encoder(nn.Module):
    """rep = blocks(LN(obs_encoder(obs)));  value = head(rep)."""

    def __init__(self, obs_dim, n_agent, n_block, n_embd, n_head):
        super().__init__()
        self.state_encoder = input_encoder(STATE_DIM, n_embd)
        self.obs_encoder = input_encoder(obs_dim, n_embd)
        self.ln = nn.LayerNorm(n_embd)
        self.blocks = nn.Sequential(*(EncodeBlock(n_embd, n_head, n_agent) for _ in range(n_block)))
        self.head = output_head(n_embd, 1)

    def forward(self, obs):
        rep = self.blocks(self.ln(self.obs_encoder(obs)))
        return self.head(rep), rep


class Decoder(nn.Module):
    """logits or mean = head(blocks(LN(action_encoder(tokens)), rep)); dec_actor: an MLP of obs."""

    def __init__(
        self,
        obs_dim,
        action_dim,
        n_agent,
        n_block,
        n_embd,
        n_head,
        discrete,
        dec_actor=False,
        share_actor=False,
    ):
        super().__init__()
        self.dec_actor = dec_actor
        self.share_actor = share_actor
        if not discrete:
            self.log_std = nn.Parameter(torch.ones(action_dim))
        if dec_actor and share_actor:
            self.mlp = observation_actor(obs_dim, n_embd, action_dim)
        elif dec_actor:
            self.mlp = nn.ModuleList(
                observation_actor(obs_dim, n_embd, action_dim) for _ in range(n_agent)
            )
        else:
            self.action_encoder = action_encoder(action_dim, n_embd, discrete)
            self.obs_encoder = input_encoder(obs_dim, n_embd)
            self.ln = nn.LayerNorm(n_embd)
            self.blocks = nn.ModuleList(
                DecodeBlock(n_embd, n_head, n_agent) for _ in range(n_block)
            )
            self.head = output_head(n_embd, action_dim)

    def trunk(self, tokens, rep):
        x = self.ln(self.action_encoder(tokens))
        for block in self.blocks:
            x = block(x, rep)
        return x

    def forward(self, tokens, rep, obs):
        if not self.dec_actor:
            return self.head(self.trunk(tokens, rep))
        if self.share_actor:
            return self.mlp(obs)
        return torch.stack([actor(obs[:, i]) for i, actor in enumerate(self.mlp)], dim=1)
