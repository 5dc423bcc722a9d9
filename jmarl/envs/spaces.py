"""Action spaces of single agents, and the padded space that covers agents with different spaces.

A joint action is one array: `[E, N]` integers (Discrete), `[E, N, K]` integers (MultiDiscrete, one
per head) or `[E, N, D]` floats (Box). Agents with different spaces share the padded space that
`cover` returns; `mask` says which of its entries belong to an agent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Num


@dataclass(frozen=True)
class Discrete:
    """One of the integers 0 … n-1."""

    n: int

    @property
    def heads(self) -> tuple[int, ...]:
        return (self.n,)

    @property
    def size(self) -> int:
        """A: the number of logits that a policy outputs."""
        return self.n

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...] = ()) -> Int[Array, "*shape"]:
        """Uniform to within 2⁻²³; measured 2.5 times faster on CPU than `jax.random.randint`."""
        return jnp.floor(jax.random.uniform(key, shape) * self.n).astype(jnp.int32)


@dataclass(frozen=True)
class MultiDiscrete:
    """One integer per head; that of head k is in 0 … nvec[k]-1."""

    nvec: tuple[int, ...]

    @property
    def heads(self) -> tuple[int, ...]:
        return self.nvec

    @property
    def size(self) -> int:
        return sum(self.nvec)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...] = ()) -> Int[Array, "*shape K"]:
        unit = jax.random.uniform(key, (*shape, len(self.nvec)))
        limit = np.array(self.nvec, float).reshape((1,) * len(shape) + (-1,))
        return jnp.floor(unit * limit).astype(jnp.int32)


@dataclass(frozen=True)
class Box:
    """A vector between `low` and `high`, one bound per dimension."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @classmethod
    def uniform(cls, low: float, high: float, size: int) -> "Box":
        return cls((float(low),) * size, (float(high),) * size)

    @property
    def size(self) -> int:
        return len(self.low)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def bounded(self) -> bool:
        """Every dimension has finite bounds with low < high, also in float32."""
        bounds, largest = np.array([self.low, self.high]), np.finfo(np.float32).max
        return bool((np.abs(bounds) < largest / 2).all() and (bounds[0] < bounds[1]).all())

    def sample(self, key: Key[Array, ""], shape: tuple[int, ...] = ()) -> Float[Array, "*shape D"]:
        """Uniform within the bounds. This and the functions below require finite bounds."""
        return self.from_unit(jax.random.uniform(key, (*shape, self.size)))

    def from_unit(self, x: Float[Array, "*axes D"]) -> Float[Array, "*axes D"]:
        """low + (high - low)·x, for x in [0, 1]."""
        return x * self._width(x) + _along_last(self.low, x)

    def to_unit(self, action: Float[Array, "*axes D"]) -> Float[Array, "*axes D"]:
        """The inverse of `from_unit`."""
        return (action - _along_last(self.low, action)) / self._width(action)

    def log_width(self, like: Float[Array, "*axes D"]) -> Float[np.ndarray, "*ones D"]:
        """log(high - low), with as many axes as `like`."""
        return np.log(self._width(like))

    def _width(self, like: Float[Array, "*axes D"]) -> Float[np.ndarray, "*ones D"]:
        return _along_last(np.subtract(self.high, self.low), like)


def _along_last(
    bound: Sequence[float] | Float[np.ndarray, " D"], like: Float[Array, "*axes D"]
) -> Float[np.ndarray, "*ones D"]:
    return np.asarray(bound, like.dtype).reshape((1,) * (like.ndim - 1) + (-1,))


Space = Discrete | MultiDiscrete | Box


def cover(spaces: Sequence[Space]) -> Space:
    """The smallest space of one kind whose leading part contains each of `spaces`."""
    if all(isinstance(space, Box) for space in spaces):
        widest = max(spaces, key=lambda space: space.size)
        assert isinstance(widest, Box)
        return widest
    discrete = [space for space in spaces if not isinstance(space, Box)]
    if len(discrete) != len(spaces):
        raise TypeError(f"discrete and continuous agents cannot share one action array: {spaces}")
    columns = zip_longest(*(space.heads for space in discrete), fillvalue=1)
    heads = tuple(max(column) for column in columns)
    return Discrete(heads[0]) if len(heads) == 1 else MultiDiscrete(heads)


def mask(space: Space, padded: Space) -> Bool[np.ndarray, " A"]:
    """Which entries of `padded` belong to `space`.

    A head that `space` lacks keeps its entry 0, so that every head has one legal choice.
    """
    if isinstance(space, Box) or isinstance(padded, Box):
        return np.arange(padded.size) < space.size
    sizes = zip_longest(space.heads, padded.heads, fillvalue=1)
    return np.concatenate([np.arange(padded_size) < size for size, padded_size in sizes])


def entries(space: Space, padded: Space) -> Int[np.ndarray, " size"]:
    """The indices of the entries of `space` within those of `padded`."""
    if isinstance(space, Box) or isinstance(padded, Box):
        return np.arange(space.size)
    starts = np.cumsum((0, *padded.heads))
    return np.concatenate(
        [start + np.arange(n) for start, n in zip(starts, space.heads, strict=False)]
    )


def pad(
    action: Num[Array, "*entries"], space: Space, padded: Space
) -> Num[Array, "*padded_entries"]:
    """Convert actions `[…]` or `[…, K]` of `space` into actions of `padded`: components that
    `space` lacks are 0."""
    if space.shape:
        chex.assert_axis_dimension(action, -1, space.shape[0])
    if space.shape == padded.shape:
        return action
    components = action if space.shape else action[..., None]
    missing = padded.shape[0] - components.shape[-1]
    return jnp.pad(components, [(0, 0)] * (components.ndim - 1) + [(0, missing)])
