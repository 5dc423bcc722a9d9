"""The Multi-Agent Transformer. Wen et al. 2022; PKU-MARL/Multi-Agent-Transformer.

The encoder sees all agents' observations and gives each a value and a representation. The
decoder turns the actions of the agents before into the next agent's logits. Blocks are
post-norm; in the decoder's second attention the representation is the query *and* the residual,
the action tokens are keys and values.
"""

from typing import Any, ClassVar, NamedTuple, Protocol

import jax
from flax import linen as nn

from jmarl.kernels.attention import KeyValueCache, Lookup
from jmarl.kernels.gelu import gelu
from jmarl.networks.attention import Attention, CausalAttention, TableAttention
from jmarl.networks.convolution import Convolutions, Images
from jmarl.networks.layers import SQRT2, Dense, Head, LayerNorm, Mlp, NormDense, dense

LOG_STD = 1.0  # the reference's, at the start


class Embed(nn.Module):
    """LayerNorm → Linear → GELU: MAT's encoding of an observation. Of an image, the norm is of the
    features that convolutions see in it."""

    width: int
    images: Images | None = None

    @nn.compact
    def __call__(self, x: jax.Array, real: jax.Array | None = None) -> jax.Array:
        if self.images is not None:
            x, real = Convolutions(self.images, gelu, SQRT2, name="conv")(x), None
        linear = dense(self.width, SQRT2, name="dense")
        return gelu(NormDense(LayerNorm(name="ln"), linear)(x, real))


class EncodeBlock(nn.Module):
    width: int
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        attention = Attention(self.width, self.heads, causal=False, name="attn")
        x = LayerNorm(name="ln1")(attention.all(x, x))
        return LayerNorm(name="ln2")(x + Mlp(self.width, name="mlp")(x))


class Encoder(nn.Module):
    """Observations `[…, N, O]` → values `[…, N]` and representations `[…, N, D]`."""

    width: int
    heads: int
    blocks: int
    images: Images | None = None

    @nn.compact
    def __call__(
        self, obs: jax.Array, real: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        x = LayerNorm(name="ln")(Embed(self.width, self.images, name="obs")(obs, real))
        for i in range(self.blocks):
            x = EncodeBlock(self.width, self.heads, name=f"block_{i}")(x)
        return Head(self.width, 1, name="head")(x)[..., 0], x


class BlockCache(NamedTuple):
    actions: Any  # of the attention among tokens
    cross: KeyValueCache  # of the attention from representations to them


class DecodeBlock(nn.Module):
    width: int
    heads: int
    table: int = 0  # its tokens are rows of a table with so many entries; 0: of none

    def setup(self) -> None:
        self.ln1, self.ln2, self.ln3 = (LayerNorm() for _ in range(3))
        if self.table:
            self.attn1: CausalAttention = TableAttention(self.width, self.heads, self.table)
        else:
            self.attn1 = Attention(self.width, self.heads, causal=True)
        self.attn2 = Attention(self.width, self.heads, causal=True)
        self.mlp = Mlp(self.width)

    def __call__(self, x: jax.Array | Lookup, rep: jax.Array) -> jax.Array:
        h = self.ln1(self.attn1.all(x, x))
        h = self.ln2(self.attn2.all(h, rep))
        return self.ln3(h + self.mlp(h))

    def init_cache(self, rep: jax.Array) -> BlockCache:
        return BlockCache(self.attn1.init_cache(rep), self.attn2.init_cache(rep))

    def step(
        self, x: jax.Array | Lookup, rep: jax.Array, cache: BlockCache, i: jax.Array
    ) -> tuple[jax.Array, BlockCache]:
        """Agent i alone, `[…, D]`."""
        h, actions = self.attn1.step(x, x, cache.actions, i)
        h, cross = self.attn2.step(self.ln1(h), rep, cache.cross, i)
        h = self.ln2(h)
        return self.ln3(h + self.mlp(h)), BlockCache(actions, cross)


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
        tables = [1 + self.actions if self.one_hot else 0] + [0] * (self.blocks - 1)
        self.block = [DecodeBlock(self.width, self.heads, table) for table in tables]
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

    def init_cache(self, rep: jax.Array) -> tuple[BlockCache, ...]:
        """Of N agents, none of whom has acted; `rep` `[E, N, D]` gives the shape."""
        return tuple(block.init_cache(rep) for block in self.block)

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


Features = Any  # what a model knows of observations, a tree of `[…, N, …]`
TurnMemory = Any  # and what it remembers of the turns before


class Model(Protocol):
    """What a team's network offers, whatever is inside."""

    sequential: ClassVar[bool]  # an agent's logits depend on the actions before it
    valued_by_actions: ClassVar[bool]  # and so does its value
    value_head: ClassVar[tuple[str, ...]]  # the path to the `Head` that gives values

    def encode(self, obs: jax.Array, real: jax.Array | None = None) -> Features:
        """`[…, N, O]` → features. Where `real`, which broadcasts to `obs`,
        is 0, observations are padding."""
        ...

    def decode(self, tokens: jax.Array, features: Features) -> tuple[jax.Array, jax.Array]:
        """Logits `[…, N, A]` and values `[…, N]` of all agents, in one pass."""
        ...

    def start(self, features: Features) -> TurnMemory:
        """What is remembered before the first agent's turn."""
        ...

    def step(
        self, token: jax.Array, features: Features, memory: TurnMemory, i: jax.Array
    ) -> tuple[jax.Array, jax.Array, TurnMemory]:
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
    images: Images | None = None


class Mat(TeamNetwork):
    """The transformer itself: features are values and representations."""

    sequential: ClassVar[bool] = True
    valued_by_actions: ClassVar[bool] = False
    value_head: ClassVar[tuple[str, ...]] = ("encoder", "head")

    def setup(self) -> None:
        shape = (self.width, self.heads, self.blocks)
        self.encoder = Encoder(*shape, self.images)
        form = (self.continuous, self.one_hot, self.start_log_std)
        self.decoder = Decoder(self.actions, *shape, *form)

    def encode(self, obs: jax.Array, real: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        return self.encoder(obs, real)

    def decode(
        self, tokens: jax.Array, features: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        value, rep = features
        return self.decoder(tokens, rep), value

    def start(self, features: tuple[jax.Array, jax.Array]) -> tuple[BlockCache, ...]:
        return self.decoder.init_cache(features[1])

    def step(
        self,
        token: jax.Array,
        features: tuple[jax.Array, jax.Array],
        memory: tuple[BlockCache, ...],
        i: jax.Array,
    ) -> tuple[jax.Array, jax.Array, TurnMemory]:
        value, rep = features
        logits, memory = self.decoder.step(token, rep, memory, i)
        return logits, value, memory

    def noise(self) -> jax.Array:
        return self.decoder.log_std
