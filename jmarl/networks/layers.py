"""Layers as torch computes them: its epsilon, its GELU, its initial scales."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

SQRT2 = 2**0.5
gelu = partial(jax.nn.gelu, approximate=False)  # torch's is exact; jax's default is not


class Dense(nn.Module):
    """x·W + b over flattened rows: on CPU the gradient of W contracts one long axis much faster
    than the several leading ones that `nn.Dense` would leave."""

    features: int
    gain: float
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        orthogonal = nn.initializers.orthogonal(self.gain)
        kernel = self.param("kernel", orthogonal, (x.shape[-1], self.features))
        y = x.reshape(-1, x.shape[-1]) @ kernel
        if self.use_bias:
            y = y + self.param("bias", nn.initializers.zeros, (self.features,))[None]
        return y.reshape(*x.shape[:-1], self.features)


def dense(features: int, gain: float, use_bias: bool = True, name: str | None = None) -> Dense:
    """A linear layer with an orthogonal kernel of the given gain and zero bias."""
    return Dense(features, gain, use_bias, name=name)


def layer_norm(name: str | None = None) -> nn.LayerNorm:
    """ε = 1e-5 and a two-pass variance, as torch; Flax's defaults are 1e-6 and one pass."""
    return nn.LayerNorm(epsilon=1e-5, use_fast_variance=False, name=name)


class Head(nn.Module):
    """Linear → GELU → LayerNorm → Linear: how MAT reads values and logits off its features."""

    hidden: int
    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = gelu(dense(self.hidden, SQRT2, name="hidden")(x))
        return dense(self.features, 0.01, name="out")(layer_norm(name="ln")(x))


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
    def __call__(self, x: jax.Array) -> jax.Array:
        return gelu(dense(self.width, SQRT2, name="dense")(layer_norm(name="ln")(x)))


def split_heads(x: jax.Array, heads: int) -> jax.Array:
    """[…, L, D] → […, L, heads, D/heads]."""
    return jnp.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))


def apply(module: nn.Module, params: Any, *args: Any, method: str = "__call__") -> Any:
    """A module's method under the given parameters."""
    return module.apply({"params": params}, *args, method=method)
