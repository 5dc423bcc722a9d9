"""Mixed precision. Networks compute in the precision of their inputs, whatever their parameters
have. With inputs in bfloat16 all products multiply bfloat16 numbers, but sums over many terms
(products' own, statistics of LayerNorm, softmax, states of GRUs) and what is read outside stay in
float32. With inputs in the parameters' precision nothing is cast.
"""

import jax
import jax.numpy as jnp

from jmarl.literals import Precision


def to_compute_dtype(x: jax.Array, precision: Precision) -> jax.Array:
    """Inputs as a network takes them. float32 leaves them as they are, float64 included."""
    return x.astype(jnp.bfloat16) if precision == "bfloat16" else x
