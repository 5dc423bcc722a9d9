"""simple_crypto: Alice sends Bob a secret, encrypted with a shared key; Eve listens without it."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from jmarl.envs.mpe.world import (
    Agent,
    Entities,
    Landmark,
    World,
    at_rest,
    one_hot,
)
from jmarl.kernels.short_reductions import short_max, short_sum

WORDS = 4
SECRETS = 2  # landmarks; secret k and key k are the k-th unit vector
EVE, BOB, ALICE = 0, 1, 2


@dataclass(frozen=True)
class SimpleCrypto:
    name: ClassVar[str] = "simple_crypto"

    @property
    def entities(self) -> Entities:
        return Entities(
            agents=(
                Agent("eve_0", team="adversary", moves=False, speaks=True),
                Agent("bob_0", team="good", moves=False, speaks=True),
                Agent("alice_0", team="good", moves=False, speaks=True),
            ),
            landmarks=(Landmark(),) * SECRETS,
            message_size=WORDS,
        )

    def start(self, keys: Key[Array, " E"]) -> World:
        """goal[0]: the secret; goal[1]: the key."""
        return at_rest(self.entities, keys, goals=(SECRETS, SECRETS))

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Eve: Alice's word. Bob: the key and Alice's word. Alice: the secret and the key."""
        secret, key = one_hot(world.goal, WORDS)
        word = world.message[ALICE]
        return [
            word[None],
            jnp.concatenate([key, word])[None],
            jnp.concatenate([secret, key])[None],
        ]

    def reward(self, world: World) -> Float[Array, "N E"]:
        """With e the squared error of a message, 0 if it is empty: Eve -e_Eve; Alice and Bob
        e_Eve - e_Bob."""
        secret = one_hot(world.goal[0], WORDS)
        eve, bob = (_error(world.message[i], secret) for i in (EVE, BOB))
        return jnp.stack([-eve, eve - bob, eve - bob])

    def info(self, world: World) -> dict[str, Float[Array, " E"]]:
        """Whether Bob and Eve name the secret: its entry of their message is the largest."""
        guess = {"bob_right": world.message[BOB], "eve_right": world.message[EVE]}
        return {name: _right(message, world.goal[0]) for name, message in guess.items()}


def _right(message: Float[Array, "C E"], secret: Int[Array, " E"]) -> Float[Array, " E"]:
    spoke = short_max(jnp.abs(message)) > 0
    return (spoke & (message.argmax(0) == secret)).astype(message.dtype)


def _error(message: Float[Array, "C E"], secret: Float[Array, "C E"]) -> Float[Array, " E"]:
    spoke = short_sum((message != 0).astype(message.dtype)) > 0
    return jnp.where(spoke, short_sum((message - secret) ** 2), 0.0)
