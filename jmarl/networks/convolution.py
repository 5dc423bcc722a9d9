"""Convolutions over the images of grid worlds, which networks receive flat."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import jax
from flax import linen as nn

from jmarl.networks.layers import orthogonal

KERNEL = (3, 3)  # rows and columns


@dataclass(frozen=True)
class Images:
    """How a flat observation is read as an image."""

    shape: tuple[int, ...]  # (height, width, channels)
    features: tuple[int, ...]  # channels of the convolutions, one after the other

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def out(self) -> int:
        """The number of features that an image becomes."""
        return prod((*self.shape[:2], self.features[-1]))


class Convolutions(nn.Module):
    """Images `[…, H·W·C]` → features `[…, H·W·F]`: convolution → activation, for each of
    `images.features`."""

    images: Images
    activation: Callable[[jax.Array], jax.Array]
    gain: float  # of the initial kernels

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        pixels = x.reshape(-1, *self.images.shape)
        for i, features in enumerate(self.images.features):
            pixels = self.activation(Convolution(features, self.gain, name=f"conv_{i}")(pixels))
        return pixels.reshape(*x.shape[:-1], self.images.out)


class Convolution(nn.Module):
    """y[i, j] = Σ x[i + a, j + b]·W[a, b] + bias over a, b ∈ {-1, 0, 1}, `[B, H, W, C]` →
    `[B, H, W, F]`. Beyond the edges x is 0, so images of any size keep their size."""

    features: int
    gain: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (*KERNEL, x.shape[-1], self.features)
        kernel = self.param("kernel", orthogonal(self.gain), shape)
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        axes = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(
            x, kernel.astype(x.dtype), (1, 1), "SAME", dimension_numbers=axes
        )
        return y + bias.astype(x.dtype)[None, None, None]
