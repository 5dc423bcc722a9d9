"""A network in place of MAPPO's hidden layers: sums over random Fourier features."""

import jax.numpy as jnp
from flax import linen as nn


class Fourier(nn.Module):
    features: int = 64

    @nn.compact
    def __call__(self, x):  # […, D] → […, F]
        waves = nn.Dense(self.features, kernel_init=nn.initializers.normal(2.0))(x)
        return jnp.concatenate([jnp.sin(waves), jnp.cos(waves)], axis=-1)
