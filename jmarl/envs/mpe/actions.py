"""Decodes a policy's action into a force and a message.

Movement is five choices or five strengths in [0, 1]: stay, and one per direction. mpe2 orders them
-x, +x, -y, +y; on-policy +x, -x, +y, -y (`direction` = -1). A message is a one-hot vector
(discrete) or `message_size` numbers in [0, 1] (continuous).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, Shaped

from jmarl.envs.mpe.world import Agent, Entities, one_hot
from jmarl.envs.spaces import Box, Discrete, MultiDiscrete, Space
from jmarl.types import float_dtype

MOVES = 5

# force along x, force along y, messages
Split = tuple[Float[Array, "N E"], Float[Array, "N E"], Float[Array, "speakers C E"]]


def action_space(agent: Agent, message_size: int, actions: str) -> Space:
    """The agent's space, unpadded. `actions`: discrete, multidiscrete or continuous."""
    heads = (MOVES,) * agent.moves + (message_size,) * agent.speaks
    if actions == "continuous":
        return Box.uniform(0.0, 1.0, sum(heads))
    if len(heads) == 1 or actions == "discrete":
        return Discrete(int(np.prod(heads)))
    return MultiDiscrete(heads)


def moves_and_speaks(entities: Entities) -> bool:
    return any(agent.moves and agent.speaks for agent in entities.agents)


def decode(
    entities: Entities, actions: str, action: Num[Array, "E N *entries"], direction: float
) -> tuple[Float[Array, "N 2 E"], Float[Array, "speakers C E"]]:
    """Joint action → (control forces, messages)."""
    split = _split_continuous if actions == "continuous" else _split_discrete
    along_x, along_y, message = split(entities, jnp.moveaxis(action, 0, -1))
    accel = np.array([direction * agent.accel * agent.moves for agent in entities.agents])
    control = jnp.stack([along_x, along_y], axis=1) * accel[:, None, None]
    return control, message


def _split_continuous(entities: Entities, action: Num[Array, "N D E"]) -> Split:
    """Ignores padding."""
    strength = action.astype(float_dtype())
    messages = [
        strength[i, MOVES * entities.agents[i].moves :][: entities.message_size]
        for i in entities.speakers
    ]
    if all(not agent.moves for agent in entities.agents):
        still = jnp.zeros_like(strength[:, 0])
        return still, still, _stack(entities, messages, strength)
    along_x = strength[:, 2] - strength[:, 1]
    along_y = strength[:, 4] - strength[:, 3]
    return along_x, along_y, _stack(entities, messages, strength)


def _split_discrete(entities: Entities, action: Num[Array, "N *heads E"]) -> Split:
    """Without an axis of heads the action is move + 5·word; with it (move, word)."""
    factored = action.ndim == 3
    move = action[:, 0] if factored else _move(entities, action)
    messages = [
        one_hot(_word(entities.agents[i], action[i], factored), entities.message_size)
        for i in entities.speakers
    ]
    along_x = (move == 2).astype(float_dtype()) - (move == 1)
    along_y = (move == 4).astype(float_dtype()) - (move == 3)
    return along_x, along_y, _stack(entities, messages, along_x)


def _move(entities: Entities, action: Num[Array, "N E"]) -> Num[Array, "N E"]:
    """The movement part of flattened actions. Only agents that also speak encode a word, so a
    padded choice of any other agent is none of the five moves and does nothing."""
    both = np.array([agent.moves and agent.speaks for agent in entities.agents])
    return jnp.where(both[:, None], action % MOVES, action) if both.any() else action


def _word(agent: Agent, action: Num[Array, "*heads E"], factored: bool) -> Num[Array, " E"]:
    """The word that a speaker chose. An agent that only speaks has its words in head 0."""
    if factored:
        return action[1] if agent.moves else action[0]
    return action // MOVES if agent.moves else action


def _stack(
    entities: Entities, messages: list[Float[Array, "C E"]], like: Shaped[Array, "*axes E"]
) -> Float[Array, "speakers C E"]:
    if messages:
        return jnp.stack(messages)
    return jnp.zeros((0, entities.message_size, like.shape[-1]), like.dtype)
