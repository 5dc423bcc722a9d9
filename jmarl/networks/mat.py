"""The Multi-Agent Transformer. Wen et al. 2022; PKU-MARL/Multi-Agent-Transformer.

The encoder sees all agents' observations and gives each a value and a representation. The
decoder turns the actions of the agents before into the next agent's logits. Blocks are
post-norm; in the decoder's second attention the representation is the query *and* the residual,
the action tokens are keys and values.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from jmarl.networks.attention import Attention, Cache
from jmarl.networks.layers import SQRT2, Embed, Head, Mlp, dense, gelu, layer_norm, split_heads


class EncodeBlock(nn.Module):
    width: int
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        attended = Attention(self.width, self.heads, causal=False, name="attn")(x, x)
        x = layer_norm(name="ln1")(x + attended)
        return layer_norm(name="ln2")(x + Mlp(self.width, name="mlp")(x))


class Encoder(nn.Module):
    """Observations `[…, N, O]` → values `[…, N]` and representations `[…, N, D]`."""

    width: int
    heads: int
    blocks: int

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = layer_norm(name="ln")(Embed(self.width, name="obs")(obs))
        for i in range(self.blocks):
            x = EncodeBlock(self.width, self.heads, name=f"block_{i}")(x)
        return Head(self.width, 1, name="head")(x)[..., 0], x


class BlockCache(NamedTuple):
    actions: Cache  # of the attention among action tokens
    cross: Cache  # of the attention from representations to them


class DecodeBlock(nn.Module):
    width: int
    heads: int

    def setup(self) -> None:
        self.ln1, self.ln2, self.ln3 = (layer_norm() for _ in range(3))
        self.attn1 = Attention(self.width, self.heads, causal=True)
        self.attn2 = Attention(self.width, self.heads, causal=True)
        self.mlp = Mlp(self.width)

    def __call__(self, x: jax.Array, rep: jax.Array) -> jax.Array:
        x = self.ln1(x + self.attn1(x, x))
        x = self.ln2(rep + self.attn2(x, rep))
        return self.ln3(x + self.mlp(x))

    def step(
        self, x: jax.Array, rep: jax.Array, cache: BlockCache, i: jax.Array
    ) -> tuple[jax.Array, BlockCache]:
        """Agent i alone, `[…, D]`."""
        attended, actions = self.attn1.step(x, x, cache.actions, i)
        x = self.ln1(x + attended)
        attended, cross = self.attn2.step(x, rep, cache.cross, i)
        x = self.ln2(rep + attended)
        return self.ln3(x + self.mlp(x)), BlockCache(actions, cross)


class Decoder(nn.Module):
    """Action tokens `[…, N, tokens]` and representations → logits or means `[…, N, A]`."""

    actions: int  # A
    width: int
    heads: int
    blocks: int
    continuous: bool

    def setup(self) -> None:
        # only the continuous action encoder has a bias, as in the reference
        self.embed = dense(self.width, SQRT2, use_bias=self.continuous)
        self.ln = layer_norm()
        self.block = [DecodeBlock(self.width, self.heads) for _ in range(self.blocks)]
        self.head = Head(self.width, self.actions)
        if self.continuous:
            self.log_std = self.param("log_std", nn.initializers.ones, (self.actions,))

    def __call__(self, tokens: jax.Array, rep: jax.Array) -> jax.Array:
        x = self.ln(gelu(self.embed(tokens)))
        for block in self.block:
            x = block(x, rep)
        return self.head(x)

    def step(
        self, token: jax.Array, rep: jax.Array, cache: tuple[BlockCache, ...], i: jax.Array
    ) -> tuple[jax.Array, tuple[BlockCache, ...]]:
        """Agent i's logits `[…, A]` from the token of the agent before it. Exact: both
        attentions are causal, so earlier rows never change."""
        x, grown = self.ln(gelu(self.embed(token))), []
        for block, block_cache in zip(self.block, cache, strict=True):
            x, block_cache = block.step(x, rep, block_cache, i)
            grown.append(block_cache)
        return self.head(x), tuple(grown)

    def empty_cache(self, rep: jax.Array) -> tuple[BlockCache, ...]:
        """Room for all N agents' keys and values; `rep` `[…, N, D]` gives the shape."""
        room = jnp.zeros_like(split_heads(rep, self.heads))
        cache = BlockCache(Cache(room, room), Cache(room, room))
        return (cache,) * self.blocks

    def std(self) -> jax.Array:
        """σ = sigmoid(log_std)/2: 0.366 at the start, never above ½."""
        return jax.nn.sigmoid(self.log_std) * 0.5
