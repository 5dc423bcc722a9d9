"""Layers as torch computes them: its epsilon, its GELU, its initial scales."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jmarl.kernels.gelu import gelu
from jmarl.kernels.layer_norm import EPSILON, standardise
from jmarl.kernels.linear import affine, affine_last, fold_scale
from jmarl.kernels.precision import at_least_float32

SQRT2 = 2**0.5


class Dense(nn.Module):
    """x·W + b over the last axis."""

    features: int
    gain: float | None  # of an orthogonal kernel with a zero bias; None: torch's default for both
    use_bias: bool = True
    last: bool = False  # outputs are read outside of networks, in the parameters' precision

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.apply_weights(x, *self.weights(x.shape[-1]))

    def apply_weights(self, x: jax.Array, kernel: jax.Array, bias: jax.Array | None) -> jax.Array:
        return (affine_last if self.last else affine)(x, kernel, bias)

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


def dense(
    features: int, gain: float | None, use_bias: bool = True, name: str | None = None
) -> Dense:
    """A linear layer with an orthogonal kernel of the given gain and zero bias, or torch's."""
    return Dense(features, gain, use_bias, name=name)


def last_dense(features: int, gain: float | None, name: str) -> Dense:
    """The layer that gives logits or values."""
    return Dense(features, gain, last=True, name=name)


def standardise_real(x: jax.Array, real: jax.Array) -> jax.Array:
    """(x - mean)/√(var + ε) where `real` (0 or 1) is 1; the other entries, padding, become 0."""
    count = real.sum(-1, keepdims=True)
    centred = (x - (x * real).sum(-1, keepdims=True) / count) * real
    return centred * jax.lax.rsqrt((centred**2).sum(-1, keepdims=True) / count + EPSILON)


class LayerNorm(nn.Module):
    """y·s + t, where y is x with mean 0 and variance 1."""

    def __call__(self, x: jax.Array) -> jax.Array:
        size = x.shape[-1]
        scale, shift = self.weights(size)
        y = at_least_float32(self.standardised(x)).reshape(-1, size)
        return (y * scale[None] + shift[None]).reshape(x.shape).astype(x.dtype)

    def standardised(self, x: jax.Array) -> jax.Array:
        """y."""
        y = standardise(at_least_float32(x).reshape(-1, x.shape[-1]))
        return y.reshape(x.shape).astype(x.dtype)

    def folded(
        self, x: jax.Array, kernel: jax.Array, bias: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """y, W' and b' such that y·W' + b' = (y·s + t)·W + b."""
        assert bias is not None
        y = self.standardised(x)
        return y, *fold_scale(*self.weights(x.shape[-1]), kernel, bias)

    def of_real(self, x: jax.Array, real: jax.Array) -> jax.Array:
        """Where `real`, which broadcasts to x, is 0, x is padding: it counts for nothing, and the
        result is 0."""
        real = jnp.broadcast_to(real.astype(at_least_float32(x).dtype), x.shape)
        scale, shift = (w.reshape((1,) * (x.ndim - 1) + w.shape) for w in self.weights(x.shape[-1]))
        y = standardise_real(at_least_float32(x), real)
        return ((y * scale + shift) * real).astype(x.dtype)

    @nn.compact
    def weights(self, size: int) -> tuple[jax.Array, jax.Array]:
        """Scale and shift `[size]`."""
        scale = self.param("scale", nn.initializers.ones, (size,))
        return scale, self.param("bias", nn.initializers.zeros, (size,))


class NormDense(nn.Module):
    """dense(norm(x)), with the norm's scale and shift folded into the dense layer's weights. The
    caller creates both modules and owns their parameters."""

    norm: LayerNorm | None  # None: dense(x)
    dense: Dense

    def __call__(self, x: jax.Array, real: jax.Array | None = None) -> jax.Array:
        """Where `real`, which broadcasts to x, is 0, x is padding."""
        if self.norm is None:
            return self.dense(x)
        if real is not None:
            return self.dense(self.norm.of_real(x, real))
        weights = self.dense.weights(x.shape[-1])
        return self.dense.apply_weights(*self.norm.folded(x, *weights))


class Head(nn.Module):
    """Linear → GELU → LayerNorm → Linear: how MAT reads values and logits off its features."""

    hidden: int
    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = gelu(dense(self.hidden, SQRT2, name="hidden")(x))
        out = last_dense(self.features, 0.01, name="out")
        return NormDense(LayerNorm(name="ln"), out)(x)


class Mlp(nn.Module):
    """The feed-forward part of a MAT block: as wide as its input, not four times."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = gelu(dense(self.width, SQRT2, name="hidden")(x))
        return dense(self.width, 0.01, name="out")(x)


def split_heads(x: jax.Array, heads: int) -> jax.Array:
    """[…, L, D] → […, L, heads, D/heads]."""
    return jnp.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))


def apply(module: nn.Module, params: Any, *args: Any, method: str = "__call__") -> Any:
    """A module's method under the given parameters."""
    return module.apply({"params": params}, *args, method=method)
