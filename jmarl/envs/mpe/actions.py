"""From what a policy chooses to what an agent does: a force and an utterance.

Movement is five choices or five strengths in [0, 1]: stay, and one per direction. mpe2 orders
them -x, +x, -y, +y; on-policy +x, -x, +y, -y (`direction` = -1). A speaker's utterance is a
one-hot vector (discrete) or `message_size` numbers in [0, 1] (continuous).
"""

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.envs.mpe.world import Agent, Cast, one_hot
from jmarl.envs.spaces import Box, Discrete, MultiDiscrete, Space
from jmarl.types import float_dtype

MOVES = 5


def action_space(agent: Agent, message_size: int, actions: str) -> Space:
    """An agent's own space under `actions`: discrete, multidiscrete or continuous."""
    heads = (MOVES,) * agent.moves + (message_size,) * agent.speaks
    if actions == "continuous":
        return Box.uniform(0.0, 1.0, sum(heads))
    if len(heads) == 1 or actions == "discrete":
        return Discrete(int(np.prod(heads)))
    return MultiDiscrete(heads)


def moves_and_speaks(cast: Cast) -> bool:
    return any(agent.moves and agent.speaks for agent in cast.agents)


def decode(
    cast: Cast, actions: str, action: jax.Array, direction: float
) -> tuple[jax.Array, jax.Array]:
    """Joint action `[E, N, …]` → control `[N, 2, E]`, messages `[speakers, C, E]`."""
    split = _split_continuous if actions == "continuous" else _split_discrete
    along_x, along_y, message = split(cast, jnp.moveaxis(action, 0, -1))
    accel = np.array([direction * agent.accel * agent.moves for agent in cast.agents])
    control = jnp.stack([along_x, along_y], axis=1) * accel[:, None, None]
    return control, message


def _split_continuous(cast: Cast, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`[N, D, E]`; entries beyond an agent's own are ignored."""
    strength = action.astype(float_dtype())
    said = [strength[i, MOVES * cast.agents[i].moves :][: cast.message_size] for i in cast.speakers]
    if all(not agent.moves for agent in cast.agents):
        still = jnp.zeros_like(strength[:, 0])
        return still, still, _stack(cast, said, strength)
    along_x = strength[:, 2] - strength[:, 1]
    along_y = strength[:, 4] - strength[:, 3]
    return along_x, along_y, _stack(cast, said, strength)


def _split_discrete(cast: Cast, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`[N, E]` (flattened: move + 5·word) or `[N, heads, E]` (factored: move, word)."""
    factored = action.ndim == 3
    move = action[:, 0] if factored else _move(cast, action)
    said = [
        one_hot(_word(cast.agents[i], action[i], factored), cast.message_size)
        for i in cast.speakers
    ]
    along_x = (move == 2).astype(float_dtype()) - (move == 1)
    along_y = (move == 4).astype(float_dtype()) - (move == 3)
    return along_x, along_y, _stack(cast, said, along_x)


def _move(cast: Cast, action: jax.Array) -> jax.Array:
    """[N, E]: the movement within flattened actions; only those who also speak have words in them,
    so that a padded choice of the others is none of the five and does nothing."""
    both = np.array([agent.moves and agent.speaks for agent in cast.agents])
    return jnp.where(both[:, None], action % MOVES, action) if both.any() else action


def _word(agent: Agent, action: jax.Array, factored: bool) -> jax.Array:
    """[E]: which word a speaker chose. One that only speaks has its words in head 0."""
    if factored:
        return action[1] if agent.moves else action[0]
    return action // MOVES if agent.moves else action


def _stack(cast: Cast, said: list[jax.Array], like: jax.Array) -> jax.Array:
    if said:
        return jnp.stack(said)
    return jnp.zeros((0, cast.message_size, like.shape[-1]), like.dtype)
