"""Gated recurrent units as torch's `nn.GRU` computes them, several layers along a sequence."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from jmarl.kernels.gru import gru_gates, gru_states
from jmarl.kernels.linear import affine
from jmarl.networks.layers import LayerNorm

Init = Callable[..., jax.Array]


class Weights(nn.Module):
    """Of all three gates, side by side."""

    width: int
    kernel_init: Init
    bias_init: Init

    @nn.compact
    def __call__(self, size: int) -> tuple[jax.Array, jax.Array]:
        kernel = self.param("kernel", self.kernel_init, (size, 3 * self.width))
        return kernel, self.param("bias", self.bias_init, (3 * self.width,))


class Gru(nn.Module):
    """Layers of width H over a leading axis of length L."""

    width: int
    layers: int
    kernel_init: Init
    bias_init: Init

    def setup(self) -> None:
        def weights(name: str) -> Weights:
            return Weights(self.width, self.kernel_init, self.bias_init, name=name)

        self.input = [weights(f"input_{i}") for i in range(self.layers)]
        self.hidden = [weights(f"hidden_{i}") for i in range(self.layers)]

    def __call__(
        self,
        x: jax.Array,
        start: jax.Array,
        episode_start: jax.Array | None = None,
        norm: LayerNorm | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """`[L, …, D]` → outputs `[L, …, H]` and last states `[layers, …, H]`.

        Where `episode_start` `[L, …]` is 1, the state becomes zero before that input is read. The
        first layer reads norm(x)."""
        length, *between, _ = x.shape
        if episode_start is None:
            kept = jnp.ones((length, *between), start.dtype)
        else:
            kept = 1.0 - episode_start
        last = []
        for i in range(self.layers):
            inputs = self._inputs(i, x, norm if i == 0 else None)
            rows = inputs.reshape(length, -1, inputs.shape[-1])
            first = start[i].reshape(-1, self.width)
            after = gru_states(rows, kept.reshape(length, -1), first, *self.hidden[i](self.width))
            after = after.reshape(length, *between, self.width)
            x = after.astype(inputs.dtype)
            last.append(after[-1])
        return x, jnp.stack(last)

    def step(self, x: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
        """One input `[…, D]`: output `[…, H]` and states `[layers, …, H]`."""
        after = []
        for i in range(self.layers):
            gates = gru_gates(h[i], self._inputs(i, x), *self.hidden[i](self.width))
            after.append(gates.next(h[i]))
            x = after[-1].astype(x.dtype)
        return x, jnp.stack(after)

    def _inputs(self, layer: int, x: jax.Array, norm: LayerNorm | None = None) -> jax.Array:
        """W·x + b of all inputs at once."""
        kernel, bias = self.input[layer](x.shape[-1])
        return affine(*(norm.folded(x, kernel, bias) if norm else (x, kernel, bias)))
