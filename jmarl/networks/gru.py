"""Gated recurrent units as torch's `nn.GRU` computes them: gates r, z, n, two biases.

r = σ(W_r·x + b_r + U_r·h + c_r);  z likewise;  n = tanh(W_n·x + b_n + r·(U_n·h + c_n));
h ← (1 - z)·n + z·h.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from jmarl.networks.layers import affine

Init = Callable[..., jax.Array]


def torch_uniform(fan: int) -> Init:
    """U(-1/√fan, 1/√fan): torch's default for every weight and bias of a GRU of that width."""

    def draw(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) / fan**0.5

    return draw


class Weights(nn.Module):
    """Of all three gates, side by side."""

    width: int
    kernel_init: Init
    bias_init: Init

    @nn.compact
    def __call__(self, size: int) -> tuple[jax.Array, jax.Array]:
        kernel = self.param("kernel", self.kernel_init, (size, 3 * self.width))
        return kernel, self.param("bias", self.bias_init, (3 * self.width,))


def cell(h: jax.Array, gates: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """The next state `[…, H]`, as precise as the last; `gates` `[…, 3H]` is the input's part,
    W·x + b."""
    r, z, n = jnp.split(gates, 3, axis=-1)
    hr, hz, hn = jnp.split(affine(h.astype(gates.dtype), kernel, bias), 3, axis=-1)
    z = jax.nn.sigmoid(z + hz)
    return (1.0 - z) * jnp.tanh(n + jax.nn.sigmoid(r + hr) * hn) + z * h


def _reading(
    kernel: jax.Array, bias: jax.Array, h: jax.Array, now: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    gates, kept = now
    h = cell(h * kept[..., None], gates, kernel, bias)
    return h, h.astype(gates.dtype)


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
        self, x: jax.Array, start: jax.Array, fresh: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """`[L, …, D]` → outputs `[L, …, H]` and last states `[layers, …, H]`.

        Where `fresh` `[L, …]` is set, the state is zero before that input is read."""
        kept = jnp.ones(x.shape[:-1], x.dtype) if fresh is None else 1.0 - fresh
        last = []
        for i in range(self.layers):
            cells = partial(_reading, *self.hidden[i](self.width))
            h, x = lax.scan(cells, start[i], (self._gates(i, x), kept))
            last.append(h)
        return x, jnp.stack(last)

    def step(self, x: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
        """One input `[…, D]`: output `[…, H]` and states `[layers, …, H]`."""
        states = []
        for i in range(self.layers):
            after = cell(h[i], self._gates(i, x), *self.hidden[i](self.width))
            x = after.astype(x.dtype)
            states.append(after)
        return x, jnp.stack(states)

    def _gates(self, layer: int, x: jax.Array) -> jax.Array:
        """W·x + b of all inputs at once."""
        return affine(x, *self.input[layer](x.shape[-1]))
