"""A gated recurrent unit along a sequence, as torch's `nn.GRU`: gates r, z, n, two biases.

r = σ(W_r·x + b_r + U_r·h + c_r);  z likewise;  n = tanh(W_n·x + b_n + r·(U_n·h + c_n));
h ← (1 - z)·n + z·h.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.kernels.linear import affine
from jmarl.kernels.matmul import kernel_gradient


class Gates(NamedTuple):
    """Of one step, `[…, H]` each."""

    r: jax.Array
    z: jax.Array
    n: jax.Array
    hn: jax.Array  # U_n·h + c_n

    def next(self, h: jax.Array) -> jax.Array:
        """The next state, in the precision of this one."""
        return (1.0 - self.z) * self.n + self.z * h


def gru_gates(h: jax.Array, inputs: jax.Array, kernel: jax.Array, bias: jax.Array) -> Gates:
    """`inputs` `[…, 3H]` are W·x + b; `kernel` `[H, 3H]` and `bias` are U and c."""
    r, z, n = jnp.split(inputs, 3, axis=-1)
    hr, hz, hn = jnp.split(affine(h.astype(inputs.dtype), kernel, bias), 3, axis=-1)
    r, z = jax.nn.sigmoid(r + hr), jax.nn.sigmoid(z + hz)
    return Gates(r, z, jnp.tanh(n + r * hn), hn)


def gru_states_reference(
    inputs: jax.Array, kept: jax.Array, start: jax.Array, kernel: jax.Array, bias: jax.Array
) -> jax.Array:
    """States `[L, B, H]` after inputs W·x + b `[L, B, 3H]`, from `start` `[B, H]`; where `kept`
    `[L, B]` is 0, the state becomes zero before that input is read."""

    def step(h: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, keep = now
        h = jnp.where(keep[:, None] > 0, h, 0.0)
        xr, xz, xn = jnp.split(x, 3, axis=-1)
        hr, hz, hn = jnp.split(h @ kernel + bias[None], 3, axis=-1)
        z = jax.nn.sigmoid(xz + hz)
        h = (1 - z) * jnp.tanh(xn + jax.nn.sigmoid(xr + hr) * hn) + z * h
        return h, h

    return lax.scan(step, start, (inputs, kept))[1]


@jax.custom_vjp
def gru_states(
    inputs: jax.Array, kept: jax.Array, start: jax.Array, kernel: jax.Array, bias: jax.Array
) -> jax.Array:
    """States `[L, B, H]` after inputs W·x + b `[L, B, 3H]`, from `start` `[B, H]`; where `kept`
    `[L, B]` is 0, the state becomes zero before that input is read."""
    return _states(inputs, kept, start, kernel, bias)[0]


def _reset(h: jax.Array, kept: jax.Array) -> jax.Array:
    """0 where `kept` is 0, even in place of NaN, which a product would keep for ever."""
    return jnp.where(kept[..., None] > 0, h, 0.0)


class Residuals(NamedTuple):
    """What the gradient needs to know."""

    gates: Gates
    kept: jax.Array
    start: jax.Array
    after: jax.Array
    kernel: jax.Array


def _states(
    inputs: jax.Array, kept: jax.Array, start: jax.Array, kernel: jax.Array, bias: jax.Array
) -> tuple[jax.Array, Residuals]:
    def step(
        h: jax.Array, now: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, tuple[jax.Array, Gates]]:
        x, keep = now
        h = _reset(h, keep)
        gates = gru_gates(h, x, kernel, bias)
        after = gates.next(h)
        return after, (after, gates)

    _, (after, gates) = lax.scan(step, start, (inputs, kept))
    return after, Residuals(gates, kept, start, after, kernel)


def _states_gradient(residuals: Residuals, grads: jax.Array) -> tuple[jax.Array, ...]:
    """The scan computes only what a step hands to the one before. U's gradient is one product over
    all steps; automatic differentiation adds one matrix to another in every step."""
    gates, kept, start, after, kernel = residuals
    before = _reset(jnp.concatenate([start[None], after[:-1]]), kept)

    def back(
        later: jax.Array, now: tuple[Gates, jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        (r, z, n, hn), h, keep, grad = now
        grad = grad + later
        of_n = grad * (1.0 - z) * (1.0 - n**2)
        of_z = grad * (h - n) * z * (1.0 - z)
        of_r = of_n * hn * r * (1.0 - r)
        of_input = jnp.concatenate([of_r, of_z, of_n], axis=-1).astype(n.dtype)
        of_state = jnp.concatenate([of_r, of_z, of_n * r], axis=-1).astype(n.dtype)  # of U·h + c
        of_h = grad * z + of_state @ kernel.T.astype(n.dtype)
        return _reset(of_h, keep), (of_input, of_state)

    nothing = jnp.zeros_like(start)
    of_start, (of_inputs, of_states) = lax.scan(
        back, nothing, (gates, before, kept, grads), reverse=True
    )
    rows = of_states.reshape(-1, of_states.shape[-1])
    of_kernel = kernel_gradient(before.astype(rows.dtype).reshape(len(rows), -1), rows)
    of_bias = rows.astype(kernel.dtype).sum(0)
    return of_inputs, jnp.zeros_like(kept), of_start, of_kernel.astype(kernel.dtype), of_bias


gru_states.defvjp(_states, _states_gradient)
