"""Layers as torch computes them: its epsilon, its GELU, its initial scales."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jmarl.networks.precision import product, turned_product, wide

SQRT2 = 2**0.5


@jax.custom_vjp
def gelu(x: jax.Array) -> jax.Array:
    """x·Φ(x), exact as torch's; jax's default is an approximation."""
    return x * _normal_cdf(x)


def _normal_cdf(x: jax.Array) -> jax.Array:
    return 0.5 * (1.0 + jax.lax.erf(x / SQRT2))


def _gelu(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """With its slope Φ(x) + x·φ(x), made while Φ is at hand: kept, it saves another erf."""
    below = _normal_cdf(x)
    density = jnp.exp(-0.5 * x**2) / (2 * math.pi) ** 0.5
    return x * below, below + x * density


gelu.defvjp(_gelu, lambda slope, grad: (grad * slope,))


class Normed(NamedTuple):
    """What a LayerNorm gives, y·s + t, before it is scaled and shifted: a linear layer that reads
    it does so in its own weights, which are fewer than the rows are."""

    rows: jax.Array  # y […, D]
    scale: jax.Array  # s [D]
    shift: jax.Array  # t [D]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    @property
    def plain(self) -> jax.Array:
        rows = wide(self.rows).reshape(-1, self.shape[-1]) * self.scale[None] + self.shift[None]
        return rows.reshape(self.shape).astype(self.rows.dtype)


Features = jax.Array | Normed


class Dense(nn.Module):
    """x·W + b over flattened rows: on CPU the gradient of W contracts one long axis much faster
    than the several leading ones that `nn.Dense` would leave."""

    features: int
    gain: float | None  # of an orthogonal kernel with a zero bias; None: torch's default for both
    use_bias: bool = True
    last: bool = False  # outputs are read outside of networks, with all their bits

    def __call__(self, x: Features) -> jax.Array:
        through = affine_last if self.last else affine
        return through(x, *self.weights(x.shape[-1]))

    @nn.compact
    def weights(self, size: int) -> tuple[jax.Array, jax.Array | None]:
        """Kernel `[size, features]` and bias `[features]`."""
        kernel_init = bias_init = torch_uniform(size)
        if self.gain is not None:
            kernel_init, bias_init = orthogonal(self.gain), nn.initializers.zeros
        kernel = self.param("kernel", kernel_init, (size, self.features))
        return kernel, self.param("bias", bias_init, (self.features,)) if self.use_bias else None


def torch_uniform(fan: int) -> Callable[[jax.Array, tuple[int, ...]], jax.Array]:
    """U(-1/√fan, 1/√fan): torch's default for weights and biases, of a linear layer with so many
    inputs and of a GRU of that width."""

    def draw(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) / fan**0.5

    return draw


def orthogonal(gain: float) -> Callable[[jax.Array, tuple[int, ...]], jax.Array]:
    """Initial matrices Q·gain. Under `vmap` they are made one after the other: jaxlib's batched QR
    waits inside of the thread pool that it needs, and where two run at once nothing ends."""
    initialise = nn.initializers.orthogonal(gain)

    def init(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.custom_batching.sequential_vmap(lambda key: initialise(key, shape))(key)

    return init


def affine(x: Features, kernel: jax.Array, bias: jax.Array | None) -> jax.Array:
    """x·W + b over the last axis, rows flattened."""
    x, kernel, bias = _folded(x, kernel, bias)
    y = product(x.reshape(-1, x.shape[-1]), kernel)
    if bias is not None:
        y = y + bias[None]
    return y.reshape(*x.shape[:-1], kernel.shape[-1]).astype(x.dtype)


def affine_last(x: Features, kernel: jax.Array, bias: jax.Array | None) -> jax.Array:
    """The same in the parameters' precision, with the few outputs first in memory."""
    x, kernel, bias = _folded(x, kernel, bias)
    y = turned_product(x.reshape(-1, x.shape[-1]), kernel)
    if bias is not None:
        y = y + bias[:, None]
    return y.T.reshape(*x.shape[:-1], kernel.shape[-1])


def _folded(x: Features, kernel: jax.Array, bias: Any) -> tuple[jax.Array, jax.Array, Any]:
    """(y·s + t)·W + b = y·(s·W) + (t·W + b)."""
    if not isinstance(x, Normed):
        return x, kernel, bias
    return x.rows, x.scale[:, None] * kernel, (x.shift[:, None] * kernel).sum(0) + bias


def dense(
    features: int, gain: float | None, use_bias: bool = True, name: str | None = None
) -> Dense:
    """A linear layer with an orthogonal kernel of the given gain and zero bias, or torch's."""
    return Dense(features, gain, use_bias, name=name)


def last_dense(features: int, gain: float | None, name: str) -> Dense:
    """The layer that gives logits or values."""
    return Dense(features, gain, last=True, name=name)


def side_by_side(x: jax.Array, layers: Sequence[Dense]) -> list[jax.Array]:
    """Several layers' outputs for one input, as one wide product."""
    kernels, biases = zip(*(layer.weights(x.shape[-1]) for layer in layers), strict=True)
    y = affine(x, jnp.concatenate(kernels, axis=1), jnp.concatenate(biases))
    return jnp.split(y, np.cumsum([layer.features for layer in layers])[:-1], axis=-1)


EPSILON = 1e-5  # of torch's LayerNorm; Flax's is 1e-6


@jax.custom_vjp
def standardise(x: jax.Array) -> jax.Array:
    """(x - mean)/√(var + ε) over the last axis, the variance in a second pass."""
    return _standardise(x)[0]


def _standardise(x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    centred = x - x.mean(-1, keepdims=True)
    inverse = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    y = centred * inverse
    return y, (y, inverse)


def _standardise_gradient(
    kept: tuple[jax.Array, jax.Array], grad: jax.Array
) -> tuple[jax.Array, ...]:
    """(g - mean(g) - y·mean(g·y))/σ: two sums over each row, where the derived form has five."""
    y, inverse = kept
    along = (grad * y).mean(-1, keepdims=True)
    return ((grad - grad.mean(-1, keepdims=True) - y * along) * inverse,)


standardise.defvjp(_standardise, _standardise_gradient)


def standardise_real(x: jax.Array, real: jax.Array) -> jax.Array:
    """The same over the entries where `real` (0 or 1) is 1; the others, padding, become 0."""
    count = real.sum(-1, keepdims=True)
    centred = (x - (x * real).sum(-1, keepdims=True) / count) * real
    return centred * jax.lax.rsqrt((centred**2).sum(-1, keepdims=True) / count + EPSILON)


class LayerNorm(nn.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return self.unscaled(x).plain

    def unscaled(self, x: jax.Array) -> Normed:
        """For linear layers to read."""
        size = x.shape[-1]
        rows = standardise(wide(x).reshape(-1, size)).reshape(x.shape)
        return Normed(rows.astype(x.dtype), *self.weights(size))

    def of_inputs(self, x: jax.Array, real: jax.Array | None) -> Features:
        """For linear layers to read. Where `real`, which broadcasts to x, is 0, x is padding: it
        counts for nothing, and the layer that reads it gets 0."""
        if real is None:
            return self.unscaled(x)
        real = jnp.broadcast_to(real.astype(wide(x).dtype), x.shape)
        scale, shift = (w.reshape((1,) * (x.ndim - 1) + w.shape) for w in self.weights(x.shape[-1]))
        return ((standardise_real(wide(x), real) * scale + shift) * real).astype(x.dtype)

    @nn.compact
    def weights(self, size: int) -> tuple[jax.Array, jax.Array]:
        """Scale and shift `[size]`."""
        scale = self.param("scale", nn.initializers.ones, (size,))
        return scale, self.param("bias", nn.initializers.zeros, (size,))


class Head(nn.Module):
    """Linear → GELU → LayerNorm → Linear: how MAT reads values and logits off its features."""

    hidden: int
    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = gelu(dense(self.hidden, SQRT2, name="hidden")(x))
        return last_dense(self.features, 0.01, name="out")(LayerNorm(name="ln").unscaled(x))


class Mlp(nn.Module):
    """The feed-forward part of a MAT block: as wide as its input, not four times."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = gelu(dense(self.width, SQRT2, name="hidden")(x))
        return dense(self.width, 0.01, name="out")(x)


class Embed(nn.Module):
    """LayerNorm → Linear → GELU: MAT's encoding of an observation."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array, real: jax.Array | None = None) -> jax.Array:
        read = LayerNorm(name="ln").of_inputs(x, real)
        return gelu(dense(self.width, SQRT2, name="dense")(read))


def split_heads(x: jax.Array, heads: int) -> jax.Array:
    """[…, L, D] → […, L, heads, D/heads]."""
    return jnp.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))


def apply(module: nn.Module, params: Any, *args: Any, method: str = "__call__") -> Any:
    """A module's method under the given parameters."""
    return module.apply({"params": params}, *args, method=method)
