"""The networks of MAPPO and IPPO: one description covers on-policy's and XuanCe's.

LayerNorm? → (Linear → activation → LayerNorm?)ⁿ → (GRU → LayerNorm?)? → agent id? →
(Linear → activation → LayerNorm?)ᵐ → Linear.

Images begin with (Convolution → activation)ᵏ → LayerNorm? in place of the first LayerNorm. Over
pixels that would make an object look different whenever other objects are in view, while a
convolution is to see it alike everywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jmarl.errors import ConfigError
from jmarl.literals import Activation, HeadInit
from jmarl.networks.convolution import Convolutions, Images
from jmarl.networks.gru import Gru
from jmarl.networks.layers import (
    SQRT2,
    LayerNorm,
    NormDense,
    dense,
    last_dense,
    orthogonal,
)

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}
GAINS = {"relu": SQRT2, "tanh": 5 / 3}  # torch's calculate_gain


@dataclass(frozen=True)
class Shape:
    """What the two nets have in common."""

    hidden: tuple[int, ...] = (64, 64)  # of the representation
    head_hidden: tuple[int, ...] = ()  # between the agent id and the output
    activation: Activation = "relu"
    input_norm: bool = True
    layer_norm: bool = True  # after every activation
    gain: float | None = None  # of hidden layers; None: torch's for the activation
    head_init: HeadInit = "orthogonal"  # of all layers after the agent id
    recurrent: bool = False
    gru_layers: int = 1  # one after the other
    gru_norm: bool = True  # after the last of them
    body: Callable[..., nn.Module] | None = None  # makes what stands in for the hidden layers
    images: Images | None = None  # how observations are read; None: they are vectors


class Net(nn.Module):
    """Inputs `[…, N, D]` → outputs `[…, N, out]`; with a GRU `[L, …, N, D]`, along L."""

    shape: Shape
    out: int
    out_gain: float
    log_std: float | None = None  # initial, of a Gaussian's own parameter
    images: int = 0  # how many of them the inputs begin with

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        ids: jax.Array | None,
        state: Any,
        episode_start: jax.Array | None,
        real: jax.Array | None = None,
    ) -> tuple[jax.Array, Any]:
        """Also the GRU's last state `[…, N, layers, H]`. `ids` `[N, N]` join after the
        representation; `episode_start` `[L, …]` marks where an episode begins; `real` `[N, D]` is 0
        where inputs are padding."""
        norm = LayerNorm(name="input_norm") if self.shape.input_norm else None
        if norm is not None and real is not None:
            x, norm = norm.of_real(x, real), None
        gain = GAINS[self.shape.activation] if self.shape.gain is None else self.shape.gain
        if self.images:
            x, norm = self._see(x, gain), self._norm("conv_norm")
        as_torch = self.shape.head_init == "torch_default"
        if self.shape.body is None:
            x, norm = self._layers(x, norm, self.shape.hidden, "", gain)
        else:
            x, norm = self._own_body(norm(x) if norm else x), None
        if self.shape.recurrent:
            x, state = self._along_time(x, norm, state, episode_start)
            norm = LayerNorm(name="gru_norm") if self.shape.gru_norm else None
        if ids is not None:
            x, norm = _with_ids(norm(x) if norm else x, ids), None
        head_gain = None if as_torch else gain
        x, norm = self._layers(x, norm, self.shape.head_hidden, "head_", head_gain)
        if self.log_std is not None:
            self.param("log_std", nn.initializers.constant(self.log_std), (self.out,))
        out = last_dense(self.out, None if as_torch else self.out_gain, name="out")
        return NormDense(norm, out)(x), state

    def _norm(self, name: str) -> LayerNorm | None:
        return LayerNorm(name=name) if self.shape.layer_norm else None

    def _see(self, x: jax.Array, gain: float) -> jax.Array:
        """`[…, N, D]` → `[…, N, F]`: the features of all images, each seen by the same
        convolutions, then what follows the images."""
        images = self.shape.images
        assert images is not None
        pixels, others = jnp.split(x, [self.images * images.size], axis=-1)
        activation = ACTIVATIONS[self.shape.activation]
        each = pixels.reshape(*x.shape[:-1], self.images, images.size)
        seen = Convolutions(images, activation, gain, name="conv")(each)
        return jnp.concatenate([seen.reshape(*x.shape[:-1], self.images * images.out), others], -1)

    def _own_body(self, x: jax.Array) -> jax.Array:
        """`[…, N, D]` → `[…, N, F]`."""
        assert self.shape.body is not None
        features, width = self.shape.body(name="body")(x), self.shape.hidden[-1]
        if features.shape[:-1] != x.shape[:-1]:
            raise ConfigError(
                f"net.body turns inputs of shape {x.shape} into features of shape "
                f"{features.shape}; only the last axis may differ."
            )
        if self.shape.recurrent and features.shape[-1] != width:
            raise ConfigError(
                f"net.body returns {features.shape[-1]} features, but the GRU after it has "
                f"{width}: choose net.hidden={features.shape[-1]}."
            )
        return features

    def _layers(
        self,
        x: jax.Array,
        norm: LayerNorm | None,
        sizes: tuple[int, ...],
        prefix: str,
        gain: float | None,
    ) -> tuple[jax.Array, LayerNorm | None]:
        """x ← activation(W·norm(x) + b) for each size. Returns the last norm without applying it:
        the layer that reads x folds it into its weights."""
        activation = ACTIVATIONS[self.shape.activation]
        for i, size in enumerate(sizes):
            x = activation(NormDense(norm, dense(size, gain, name=f"{prefix}dense_{i}"))(x))
            norm = self._norm(f"{prefix}ln_{i}")
        return x, norm

    def _along_time(
        self,
        x: jax.Array,
        norm: LayerNorm | None,
        state: jax.Array,
        episode_start: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        """The GRU over `[L, …, N, D]`, from states `[…, N, layers, H]` to the last."""
        width, layers = x.shape[-1], self.shape.gru_layers
        gru = Gru(width, layers, stacked_orthogonal, nn.initializers.zeros, name="gru")
        if episode_start is not None:
            episode_start = jnp.broadcast_to(episode_start[..., None], x.shape[:-1])
        x, last = gru(x, jnp.moveaxis(state, -2, 0), episode_start, norm)
        return x, jnp.moveaxis(last, 0, -2)


def _with_ids(x: jax.Array, ids: jax.Array) -> jax.Array:
    """`[…, 1 or N, D]` → `[…, N, D + N]`."""
    n = ids.shape[0]
    features = jnp.broadcast_to(x, (*x.shape[:-2], n, x.shape[-1]))
    own = ids.reshape((1,) * (x.ndim - 2) + ids.shape).astype(x.dtype)
    own = jnp.broadcast_to(own, (*x.shape[:-2], n, n))
    return jnp.concatenate([features, own], axis=-1)


def stacked_orthogonal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Orthogonal as one `[D, 3H]` matrix, gates together: what torch's `orthogonal_` does to a
    GRU's weights. A single gate's block is then not orthogonal."""
    return orthogonal(1.0)(key, shape)
