"""The reference's relatives of MAT: each leaves a part of it out, to show what the part is for."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from jmarl.kernels.gelu import gelu
from jmarl.kernels.precision import at_least_float32
from jmarl.networks.convolution import Convolutions, Images
from jmarl.networks.gru import Gru
from jmarl.networks.layers import (
    SQRT2,
    Head,
    LayerNorm,
    NormDense,
    dense,
    last_dense,
    torch_uniform,
)
from jmarl.networks.mat import (
    BlockCache,
    Decoder,
    Embed,
    Encoder,
    Mat,
    TeamNetwork,
    action_embedding,
    log_std_init,
)

Encoded = tuple[jax.Array, jax.Array]  # values […, N] and what logits are made of […, N, …]


class IndependentDecoder(TeamNetwork):
    """Agents that do not hear each other's actions: features are values and logits already."""

    sequential: ClassVar[bool] = False
    valued_by_actions: ClassVar[bool] = False
    value_head: ClassVar[tuple[str, ...]] = ("encoder", "head")

    def decode(self, tokens: jax.Array, features: Encoded) -> Encoded:
        del tokens
        value, logits = features
        return logits, value

    def start(self, features: Encoded) -> tuple[()]:
        del features
        return ()

    def step(
        self, token: jax.Array, features: Encoded, memory: tuple[()], i: jax.Array
    ) -> tuple[jax.Array, jax.Array, tuple[()]]:
        del token, i
        value, logits = features
        return logits, value, memory


class ActorNet(nn.Module):
    """MAT-Dec's actor: an MLP of one agent's observation."""

    width: int
    actions: int
    images: Images | None = None

    @nn.compact
    def __call__(self, x: jax.Array, real: jax.Array | None = None) -> jax.Array:
        if self.images is not None:
            x, real = Convolutions(self.images, gelu, SQRT2, name="conv")(x), None
        norm = LayerNorm(name="ln_0")
        for i in (1, 2):
            linear = dense(self.width, SQRT2, name=f"dense_{i}")
            x, real = gelu(NormDense(norm, linear)(x, real)), None
            norm = LayerNorm(name=f"ln_{i}")
        return NormDense(norm, last_dense(self.actions, 0.01, name="out"))(x)


class Actors(nn.Module):
    """One for all agents, or one each with its parameters on a leading axis."""

    width: int
    actions: int
    continuous: bool
    shared: bool
    start_log_std: float
    images: Images | None

    def setup(self) -> None:
        each = nn.vmap(
            ActorNet,
            in_axes=-2,
            out_axes=-2,
            variable_axes={"params": 0},
            split_rngs={"params": True},
        )
        self.actor = (ActorNet if self.shared else each)(self.width, self.actions, self.images)
        if self.continuous:
            self.log_std = self.param("log_std", *log_std_init(self.actions, self.start_log_std))

    def __call__(self, obs: jax.Array, real: jax.Array | None = None) -> jax.Array:
        return self.actor(obs, real)


class MatDec(IndependentDecoder):
    """Central values from the encoder, decisions from each agent's own observation."""

    share_actor: bool = True

    def setup(self) -> None:
        self.encoder = Encoder(self.width, self.heads, self.blocks, self.images)
        form = (self.continuous, self.share_actor, self.start_log_std, self.images)
        self.decoder = Actors(self.width, self.actions, *form)

    def encode(self, obs: jax.Array, real: jax.Array | None = None) -> Encoded:
        return self.encoder(obs, real)[0], self.decoder(obs, real)

    def noise(self) -> jax.Array:
        return self.decoder.log_std


class MatEncoder(IndependentDecoder):
    """Decisions from the encoder's representations, all at once."""

    def setup(self) -> None:
        self.encoder = Encoder(self.width, self.heads, self.blocks, self.images)
        self.act_head = Head(self.width, self.actions)
        if self.continuous:
            self.log_std = self.param("log_std", *log_std_init(self.actions, self.start_log_std))

    def encode(self, obs: jax.Array, real: jax.Array | None = None) -> Encoded:
        value, rep = self.encoder(obs, real)
        return value, self.act_head(rep)

    def noise(self) -> jax.Array:
        return self.log_std


class MatDecoder(TeamNetwork):
    """No encoder: an agent's representation is of its own observation alone. Its value is read
    off the decoder, so it depends on the actions before it."""

    sequential: ClassVar[bool] = True
    valued_by_actions: ClassVar[bool] = True
    value_head: ClassVar[tuple[str, ...]] = ("val_head",)

    def setup(self) -> None:
        shape = (self.width, self.heads, self.blocks)
        form = (self.continuous, self.one_hot, self.start_log_std)
        self.decoder = Decoder(self.actions, *shape, *form)
        self.obs = Embed(self.width, self.images)
        self.val_head = Head(self.width, 1)

    def encode(self, obs: jax.Array, real: jax.Array | None = None) -> jax.Array:
        return self.obs(obs, real)

    def decode(self, tokens: jax.Array, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = self.decoder.trunk(tokens, features)
        return self.decoder.head(x), self.val_head(x)[..., 0]

    def start(self, features: jax.Array) -> tuple[BlockCache, ...]:
        return self.decoder.init_cache(features)

    def step(
        self, token: jax.Array, features: jax.Array, memory: tuple[BlockCache, ...], i: jax.Array
    ) -> tuple[jax.Array, jax.Array, tuple[BlockCache, ...]]:
        x, memory = self.decoder.trunk_step(token, features, memory, i)
        return self.decoder.head(x), self.val_head(x)[..., 0], memory

    def noise(self) -> jax.Array:
        return self.decoder.log_std


LAYERS = 2  # of each GRU


class MatGru(Mat):
    """GRUs along the agents where MAT has attention; `heads` and `blocks` have no meaning."""

    def setup(self) -> None:
        self.encoder = GruEncoder(self.width, self.images)
        form = (self.continuous, self.start_log_std)
        self.decoder = GruDecoder(self.actions, self.width, *form)


class GruEncoder(nn.Module):
    width: int
    images: Images | None

    def setup(self) -> None:
        self.obs = Embed(self.width, self.images)
        self.ln = LayerNorm()
        self.gru = _gru(self.width)
        self.head = Head(self.width, 1)

    def __call__(self, obs: jax.Array, real: jax.Array | None = None) -> Encoded:
        rep = _along_agents(self.gru, self.ln(self.obs(obs, real)))
        return self.head(rep)[..., 0], rep


class GruDecoder(nn.Module):
    actions: int
    width: int
    continuous: bool
    start_log_std: float

    def setup(self) -> None:
        self.embed = action_embedding(self.width, self.continuous)
        self.ln = LayerNorm()
        self.gru = _gru(self.width)
        self.head = Head(self.width, self.actions)
        if self.continuous:
            self.log_std = self.param("log_std", *log_std_init(self.actions, self.start_log_std))

    def __call__(self, tokens: jax.Array, rep: jax.Array) -> jax.Array:
        return self.head(_along_agents(self.gru, self._read(tokens, rep)))

    def init_cache(self, rep: jax.Array) -> jax.Array:
        """The states before the first agent; a `Decoder` remembers keys and values instead."""
        return _no_state(rep)

    def step(
        self, token: jax.Array, rep: jax.Array, state: jax.Array, i: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        del i
        x, state = self.gru.step(self._read(token, rep), state)
        return self.head(x), state

    def _read(self, tokens: jax.Array, rep: jax.Array) -> jax.Array:
        return self.ln(gelu(self.embed(tokens)) + rep)


def _gru(width: int) -> Gru:
    return Gru(width, LAYERS, torch_uniform(width), torch_uniform(width))


def _along_agents(gru: Gru, x: jax.Array) -> jax.Array:
    """`[…, N, D]` → `[…, N, D]`, agent after agent."""
    y, _ = gru(jnp.moveaxis(x, -2, 0), _no_state(x))
    return jnp.moveaxis(y, 0, -2)


def _no_state(x: jax.Array) -> jax.Array:
    """[layers, …, D] for features `[…, N, D]`."""
    return at_least_float32(jnp.zeros((LAYERS, *x.shape[:-2], x.shape[-1]), x.dtype))


VARIANTS: dict[str, type[TeamNetwork]] = {
    "mat_dec": MatDec,
    "mat_encoder": MatEncoder,
    "mat_decoder": MatDecoder,
    "mat_gru": MatGru,
}
