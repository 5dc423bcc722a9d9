"""JaxMARL's STORM worlds with JaxMARL's own interface, which they lack: their agents are numbers,
and what these see and earn comes as arrays of all of them."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Key, Num, PyTree, Shaped

TWO_PLAYERS = "storm_2p"
WORLDS = ("storm", TWO_PLAYERS, "storm_np")
INVENTORY = "inventory"  # the key of what agents carry, beside the images

Images = dict[str, Shaped[Array, "H W C"]]


class Storm:
    """Dictionaries by `agent_0`, …; all other attributes are those of the world."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.agents = [f"agent_{i}" for i in range(env.num_agents)]
        self.max_steps = env.num_inner_steps * env.num_outer_steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def action_space(self, agent: str) -> Any:
        return self._env.action_spaces[self.agents.index(agent)]

    def reset(self, key: Key[Array, ""]) -> tuple[Images, PyTree]:
        seen, state = self._env.reset(key)
        return self._images(seen), state

    def step_env(
        self, key: Key[Array, ""], state: PyTree, actions: dict[str, Num[Array, ""]]
    ) -> tuple[Images, PyTree, dict[str, Any], dict[str, Any], Any]:
        numbered = {i: actions[agent] for i, agent in enumerate(self.agents)}
        seen, after, reward, done, info = self._env.step_env(key, state, numbered)
        over = dict.fromkeys((*self.agents, "__all__"), done["__all__"])
        return self._images(seen), after, dict(zip(self.agents, reward, strict=True)), over, info

    def _images(self, seen: Any) -> Images:
        """Each agent's image. What agents carry becomes channels, each the same in all cells."""
        if isinstance(seen, dict):  # of images [N, H, W, C] and numbers [F, N]
            seen = zip(seen["observations"], seen[INVENTORY].T, strict=True)
        elif isinstance(seen, tuple):  # of a dictionary for each agent
            seen = ((own["observation"], own[INVENTORY]) for own in seen)
        else:  # of images alone
            seen = ((image, jnp.zeros(0)) for image in seen)
        return dict(zip(self.agents, (_with_channels(*own) for own in seen), strict=True))


def _with_channels(
    image: Shaped[Array, "H W C"], numbers: Shaped[Array, " F"]
) -> Shaped[Array, "H W D"]:
    shape = (*image.shape[:2], *numbers.shape)
    return jnp.concatenate([image, jnp.broadcast_to(numbers[None, None], shape)], axis=-1)
