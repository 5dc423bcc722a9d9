"""torch's distributions of continuous actions with jmarl's two parameters."""

import numpy as np
import torch
from torch import distributions


def continuous(distribution, mean, scale, space):
    """One dimension for each of the space's. `mean` and `scale` are tensors."""
    low, width = torch.tensor(space.low), torch.tensor(np.subtract(space.high, space.low))
    if distribution == "gaussian":
        return distributions.Normal(mean, scale)
    if distribution == "tanh":
        squash = distributions.TanhTransform()
        onto_bounds = distributions.AffineTransform(low + width / 2, width / 2)
        return distributions.TransformedDistribution(
            distributions.Normal(mean, scale), [squash, onto_bounds]
        )
    peak = torch.sigmoid(mean)
    x = distributions.Beta(1 + peak / scale**2, 1 + (1 - peak) / scale**2)
    return distributions.TransformedDistribution(x, [distributions.AffineTransform(low, width)])
