"""The networks of MAPPO and IPPO: one description covers on-policy's and XuanCe's.

LayerNorm? → (Linear → activation → LayerNorm?)ⁿ → (GRU → LayerNorm?)? → agent id? →
(Linear → activation → LayerNorm?)ᵐ → Linear.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jmarl.literals import Activation, HeadInit
from jmarl.networks.gru import Gru
from jmarl.networks.layers import (
    SQRT2,
    Features,
    LayerNorm,
    Normed,
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


class Net(nn.Module):
    """Inputs `[…, N, D]` → outputs `[…, N, out]`; with a GRU `[L, …, N, D]`, along L."""

    shape: Shape
    out: int
    out_gain: float
    log_std: float | None = None  # initial, of a Gaussian's own parameter

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        ids: jax.Array | None,
        state: Any,
        fresh: jax.Array | None,
        real: jax.Array | None = None,
    ) -> tuple[jax.Array, Any]:
        """Also the GRU's last state `[…, N, layers, H]`. `ids` `[N, N]` join after the
        representation; `fresh` `[L, …]` marks where an episode begins; `real` `[N, D]` is 0 where
        inputs are padding."""
        norm = self.shape.input_norm
        read: Features = LayerNorm(name="input_norm").of_inputs(x, real) if norm else x
        gain = GAINS[self.shape.activation] if self.shape.gain is None else self.shape.gain
        as_torch = self.shape.head_init == "torch_default"
        read = self._layers(read, self.shape.hidden, "", gain)
        if self.shape.recurrent:
            width, layers = read.shape[-1], self.shape.gru_layers
            gru = Gru(width, layers, stacked_orthogonal, nn.initializers.zeros, name="gru")
            spread = None if fresh is None else jnp.broadcast_to(fresh[..., None], read.shape[:-1])
            told, last = gru(read, jnp.moveaxis(state, -2, 0), spread)
            read = LayerNorm(name="gru_norm").unscaled(told) if self.shape.gru_norm else told
            state = jnp.moveaxis(last, 0, -2)
        if ids is not None:
            read = _with_ids(read.plain if isinstance(read, Normed) else read, ids)
        read = self._layers(read, self.shape.head_hidden, "head_", None if as_torch else gain)
        if self.log_std is not None:
            self.param("log_std", nn.initializers.constant(self.log_std), (self.out,))
        out = last_dense(self.out, None if as_torch else self.out_gain, name="out")
        return out(read), state

    def _layers(
        self, read: Features, sizes: tuple[int, ...], prefix: str, gain: float | None
    ) -> Features:
        shape = self.shape
        for i, size in enumerate(sizes):
            x = ACTIVATIONS[shape.activation](dense(size, gain, name=f"{prefix}dense_{i}")(read))
            read = LayerNorm(name=f"{prefix}ln_{i}").unscaled(x) if shape.layer_norm else x
        return read


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
