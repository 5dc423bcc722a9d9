"""Gated recurrent units as torch's `nn.GRU` computes them: gates r, z, n, two biases.

r = σ(W_r·x + b_r + U_r·h + c_r);  z likewise;  n = tanh(W_n·x + b_n + r·(U_n·h + c_n));
h ← (1 - z)·n + z·h.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from jmarl.networks.layers import Features, affine
from jmarl.networks.precision import outer_sum

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


class Gates(NamedTuple):
    """Of one step, `[…, H]` each."""

    r: jax.Array
    z: jax.Array
    n: jax.Array
    hn: jax.Array  # U_n·h + c_n

    @classmethod
    def of(cls, told: jax.Array, remembered: jax.Array) -> "Gates":
        """From W·x + b and U·h + c, `[…, 3H]`."""
        r, z, n = jnp.split(told, 3, axis=-1)
        hr, hz, hn = jnp.split(remembered, 3, axis=-1)
        r, z = jax.nn.sigmoid(r + hr), jax.nn.sigmoid(z + hz)
        return cls(r, z, jnp.tanh(n + r * hn), hn)

    def next(self, h: jax.Array) -> jax.Array:
        """As precise as the last."""
        return (1.0 - self.z) * self.n + self.z * h


def cell(h: jax.Array, told: jax.Array, kernel: jax.Array, bias: jax.Array) -> Gates:
    """`told` `[…, 3H]` is the input's part, W·x + b."""
    return Gates.of(told, affine(h.astype(told.dtype), kernel, bias))


@jax.custom_vjp
def states(
    told: jax.Array, kept: jax.Array, start: jax.Array, kernel: jax.Array, bias: jax.Array
) -> jax.Array:
    """`[L, B, 3H]` → `[L, B, H]`; where `kept` `[L, B]` is 0, the state is zero before that input
    is read."""
    return _states(told, kept, start, kernel, bias)[0]


def _reset(h: jax.Array, kept: jax.Array) -> jax.Array:
    """0 where `kept` is 0, also in place of NaN: a product would keep that for ever."""
    return jnp.where(kept[..., None] > 0, h, 0.0)


def _states(
    told: jax.Array, kept: jax.Array, start: jax.Array, kernel: jax.Array, bias: jax.Array
) -> tuple[jax.Array, Any]:
    def read(h: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, Any]:
        told, kept = now
        h = _reset(h, kept)
        gates = cell(h, told, kernel, bias)
        after = gates.next(h)
        return after, (after, gates)

    _, (after, gates) = lax.scan(read, start, (told, kept))
    return after, (gates, kept, start, after, kernel)


def _states_gradient(given: Any, grads: jax.Array) -> tuple[jax.Array, ...]:
    """Only what a step must hand to the one before is computed step by step. U's gradient is one
    product over all of them, where the derived form adds a matrix to another in every step."""
    gates, kept, start, after, kernel = given
    before = _reset(jnp.concatenate([start[None], after[:-1]]), kept)

    def back(later: jax.Array, now: tuple) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        (r, z, n, hn), h, kept, grad = now
        grad = grad + later
        of_n = grad * (1.0 - z) * (1.0 - n**2)
        of_z = grad * (h - n) * z * (1.0 - z)
        of_r = of_n * hn * r * (1.0 - r)
        of_told = jnp.concatenate([of_r, of_z, of_n], axis=-1).astype(n.dtype)
        of_remembered = jnp.concatenate([of_r, of_z, of_n * r], axis=-1).astype(n.dtype)
        of_h = grad * z + of_remembered @ kernel.T.astype(n.dtype)
        return _reset(of_h, kept), (of_told, of_remembered)

    nothing = jnp.zeros_like(start)
    of_start, (of_told, of_remembered) = lax.scan(
        back, nothing, (gates, before, kept, grads), reverse=True
    )
    rows = of_remembered.reshape(-1, of_remembered.shape[-1])
    of_kernel = outer_sum(before.astype(rows.dtype).reshape(len(rows), -1), rows)
    of_bias = rows.astype(kernel.dtype).sum(0)
    return of_told, jnp.zeros_like(kept), of_start, of_kernel.astype(kernel.dtype), of_bias


states.defvjp(_states, _states_gradient)


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
        self, x: Features, start: jax.Array, fresh: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """`[L, …, D]` → outputs `[L, …, H]` and last states `[layers, …, H]`.

        Where `fresh` `[L, …]` is set, the state is zero before that input is read."""
        length, *between, _ = x.shape
        kept = jnp.ones((length, *between), start.dtype) if fresh is None else 1.0 - fresh
        last, read = [], x
        for i in range(self.layers):
            told = self._gates(i, read)
            rows = told.reshape(length, -1, told.shape[-1])
            first = start[i].reshape(-1, self.width)
            after = states(rows, kept.reshape(length, -1), first, *self.hidden[i](self.width))
            after = after.reshape(length, *between, self.width)
            read = after.astype(told.dtype)
            last.append(after[-1])
        return read, jnp.stack(last)  # pyright: ignore[reportReturnType] (there are layers)

    def step(self, x: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
        """One input `[…, D]`: output `[…, H]` and states `[layers, …, H]`."""
        after = []
        for i in range(self.layers):
            gates = cell(h[i], self._gates(i, x), *self.hidden[i](self.width))
            after.append(gates.next(h[i]))
            x = after[-1].astype(x.dtype)
        return x, jnp.stack(after)

    def _gates(self, layer: int, x: Features) -> jax.Array:
        """W·x + b of all inputs at once."""
        return affine(x, *self.input[layer](x.shape[-1]))
