"""simple_crypto: Alice tells Bob a secret under a shared key; Eve listens without it."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from jmarl.envs.mpe.world import (
    Agent,
    Cast,
    Landmark,
    World,
    at_rest,
    one_hot,
)
from jmarl.kernels.short_reductions import total

WORDS = 4
SECRETS = 2  # landmarks; secret k and key k are the k-th unit vector
EVE, BOB, ALICE = 0, 1, 2


@dataclass(frozen=True)
class SimpleCrypto:
    name: ClassVar[str] = "simple_crypto"

    @property
    def cast(self) -> Cast:
        return Cast(
            agents=(
                Agent("eve_0", team="adversary", moves=False, speaks=True),
                Agent("bob_0", team="good", moves=False, speaks=True),
                Agent("alice_0", team="good", moves=False, speaks=True),
            ),
            landmarks=(Landmark(),) * SECRETS,
            message_size=WORDS,
        )

    def start(self, keys: jax.Array) -> World:
        """goal[0]: the secret; goal[1]: the key."""
        return at_rest(self.cast, keys, goals=(SECRETS, SECRETS))

    def observe(self, world: World) -> list[jax.Array]:
        """Eve: Alice's word. Bob: the key and Alice's word. Alice: the secret and the key."""
        secret, key = one_hot(world.goal, WORDS)
        word = world.message[ALICE]
        return [
            word[None],
            jnp.concatenate([key, word])[None],
            jnp.concatenate([secret, key])[None],
        ]

    def reward(self, world: World) -> jax.Array:
        """With e the squared error of what one says, 0 if one says nothing: Eve -e_Eve;
        Alice and Bob e_Eve - e_Bob."""
        secret = one_hot(world.goal[0], WORDS)
        eve, bob = (_error(world.message[i], secret) for i in (EVE, BOB))
        return jnp.stack([-eve, eve - bob, eve - bob])


def _error(said: jax.Array, secret: jax.Array) -> jax.Array:
    """[C, E] → [E]"""
    spoke = total((said != 0).astype(said.dtype)) > 0
    return jnp.where(spoke, total((said - secret) ** 2), 0.0)
