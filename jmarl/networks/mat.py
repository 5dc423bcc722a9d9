"""The Multi-Agent Transformer. Wen et al. 2022; PKU-MARL/Multi-Agent-Transformer.

The encoder sees all agents' observations and gives each a value and a representation. The
decoder turns the actions of the agents before into the next agent's logits. Blocks are
post-norm; in the decoder's second attention the representation is the query *and* the residual,
the action tokens are keys and values.
"""

from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from flax import linen as nn

from jmarl.networks.attention import Attention, Cache, Lookup
from jmarl.networks.layers import (
    SQRT2,
    Dense,
    Embed,
    Head,
    LayerNorm,
    Mlp,
    dense,
    gelu,
)
from jmarl.networks.precision import wide

LOG_STD = 1.0  # the reference's, at the start


class EncodeBlock(nn.Module):
    width: int
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        attended = Attention(self.width, self.heads, causal=False, name="attn")(x, x)
        x = LayerNorm(name="ln1")(x + attended)
        return LayerNorm(name="ln2")(x + Mlp(self.width, name="mlp")(x))


class Encoder(nn.Module):
    """Observations `[…, N, O]` → values `[…, N]` and representations `[…, N, D]`."""

    width: int
    heads: int
    blocks: int

    @nn.compact
    def __call__(
        self, obs: jax.Array, real: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        x = LayerNorm(name="ln")(Embed(self.width, name="obs")(obs, real))
        for i in range(self.blocks):
            x = EncodeBlock(self.width, self.heads, name=f"block_{i}")(x)
        return Head(self.width, 1, name="head")(x)[..., 0], x


class BlockCache(NamedTuple):
    actions: Any  # Cache of the attention among tokens; or counts [E, K] of one-hot ones
    cross: Cache  # of the attention from representations to them


class DecodeBlock(nn.Module):
    width: int
    heads: int

    def setup(self) -> None:
        self.ln1, self.ln2, self.ln3 = (LayerNorm() for _ in range(3))
        self.attn1 = Attention(self.width, self.heads, causal=True)
        self.attn2 = Attention(self.width, self.heads, causal=True)
        self.mlp = Mlp(self.width)

    def __call__(self, x: jax.Array | Lookup, rep: jax.Array) -> jax.Array:
        if isinstance(x, Lookup):
            x = self.ln1(x.rows + self.attn1.among(x, jnp.cumsum(wide(x.choice), axis=-2)))
        else:
            x = self.ln1(x + self.attn1(x, x))
        x = self.ln2(rep + self.attn2(x, rep))
        return self.ln3(x + self.mlp(x))

    def step(
        self, x: jax.Array | Lookup, rep: jax.Array, cache: BlockCache, i: jax.Array
    ) -> tuple[jax.Array, BlockCache]:
        """Agent i alone, `[…, D]`."""
        if isinstance(x, Lookup):
            actions = cache.actions + x.choice
            x = self.ln1(x.rows + self.attn1.among(x, actions))
        else:
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
    one_hot: bool = False  # tokens are, so they are rows of a table
    start_log_std: float = LOG_STD

    def setup(self) -> None:
        self.embed = action_embedding(self.width, self.continuous)
        self.ln = LayerNorm()
        self.block = [DecodeBlock(self.width, self.heads) for _ in range(self.blocks)]
        self.head = Head(self.width, self.actions)
        if self.continuous:
            self.log_std = self.param("log_std", *log_std_init(self.actions, self.start_log_std))

    def __call__(self, tokens: jax.Array, rep: jax.Array) -> jax.Array:
        return self.head(self.trunk(tokens, rep))

    def trunk(self, tokens: jax.Array, rep: jax.Array) -> jax.Array:
        """`[…, N, D]`: what the head reads."""
        x: Any = self._read(tokens)
        for block in self.block:
            x = block(x, rep)
        return x

    def step(
        self, token: jax.Array, rep: jax.Array, cache: tuple[BlockCache, ...], i: jax.Array
    ) -> tuple[jax.Array, tuple[BlockCache, ...]]:
        """Agent i's logits `[…, A]` from the token of the agent before it."""
        x, grown = self.trunk_step(token, rep, cache, i)
        return self.head(x), grown

    def trunk_step(
        self, token: jax.Array, rep: jax.Array, cache: tuple[BlockCache, ...], i: jax.Array
    ) -> tuple[jax.Array, tuple[BlockCache, ...]]:
        """Exact: both attentions are causal, so earlier rows never change."""
        x: Any = self._read(token)
        grown = []
        for block, block_cache in zip(self.block, cache, strict=True):
            x, block_cache = block.step(x, rep, block_cache, i)
            grown.append(block_cache)
        return x, tuple(grown)

    def empty_cache(self, rep: jax.Array) -> tuple[BlockCache, ...]:
        """Room for all N agents' keys and values; `rep` `[E, N, D]` gives the shape."""
        empty = Cache.empty(rep, self.heads)
        first = jnp.zeros((rep.shape[0], 1 + self.actions)) if self.one_hot else empty
        return BlockCache(first, empty), *(BlockCache(empty, empty),) * (self.blocks - 1)

    def _read(self, tokens: jax.Array) -> jax.Array | Lookup:
        if self.one_hot:
            table, _ = self.embed.weights(tokens.shape[-1])
            return Lookup(tokens, self.ln(gelu(table.astype(tokens.dtype))))
        return self.ln(gelu(self.embed(tokens)))


def log_std_init(actions: int, start: float) -> tuple[Any, tuple[int]]:
    return nn.initializers.constant(start), (actions,)


def std(log_std: jax.Array) -> jax.Array:
    """The reference's σ = sigmoid(log_std)/2: 0.366 at its start, never above ½."""
    return jax.nn.sigmoid(log_std) * 0.5


def action_embedding(width: int, continuous: bool) -> Dense:
    """Only the continuous one has a bias, as in the reference."""
    return dense(width, SQRT2, use_bias=continuous)


class Model(Protocol):
    """What a team's network offers, whatever is inside."""

    sequential: ClassVar[bool]  # an agent's logits depend on the actions before it
    valued_by_actions: ClassVar[bool]  # and so does its value
    value_head: ClassVar[tuple[str, ...]]  # the path to the `Head` that gives values

    def encode(self, obs: jax.Array, real: jax.Array | None = None) -> Any:
        """`[…, N, O]` → features, a tree of `[…, N, …]`. Where `real`, which broadcasts to `obs`,
        is 0, observations are padding."""
        ...

    def decode(self, tokens: jax.Array, features: Any) -> tuple[jax.Array, jax.Array]:
        """Logits `[…, N, A]` and values `[…, N]` of all agents, in one pass."""
        ...

    def start(self, features: Any) -> Any:
        """What is remembered before the first agent's turn."""
        ...

    def step(
        self, token: jax.Array, features: Any, memory: Any, i: jax.Array
    ) -> tuple[jax.Array, jax.Array, Any]:
        """Agent i's turn: logits `[…, A]`, value `[…]` and memory."""
        ...

    def noise(self) -> jax.Array:
        """log_std `[A]` of continuous actions."""
        ...


class TeamNetwork(nn.Module):
    """The sizes that every model has."""

    actions: int
    width: int
    heads: int
    blocks: int
    continuous: bool
    one_hot: bool = False  # what an agent is told of an action
    start_log_std: float = LOG_STD  # of continuous actions' noise


class Mat(TeamNetwork):
    """The transformer itself: features are values and representations."""

    sequential: ClassVar[bool] = True
    valued_by_actions: ClassVar[bool] = False
    value_head: ClassVar[tuple[str, ...]] = ("encoder", "head")

    def setup(self) -> None:
        shape = (self.width, self.heads, self.blocks)
        self.encoder = Encoder(*shape)
        form = (self.continuous, self.one_hot, self.start_log_std)
        self.decoder = Decoder(self.actions, *shape, *form)

    def encode(self, obs: jax.Array, real: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        return self.encoder(obs, real)

    def decode(
        self, tokens: jax.Array, features: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        value, rep = features
        return self.decoder(tokens, rep), value

    def start(self, features: tuple[jax.Array, jax.Array]) -> Any:
        return self.decoder.empty_cache(features[1])

    def step(
        self,
        token: jax.Array,
        features: tuple[jax.Array, jax.Array],
        memory: Any,
        i: jax.Array,
    ) -> tuple[jax.Array, jax.Array, Any]:
        value, rep = features
        logits, memory = self.decoder.step(token, rep, memory, i)
        return logits, value, memory

    def noise(self) -> jax.Array:
        return self.decoder.log_std
