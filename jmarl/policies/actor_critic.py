"""Actor-critic policies: an actor chooses actions, a critic values them, each with memory of its
own. MAPPO and IPPO have `NetActor` and `NetCritic` (`actor_critic_nets`)."""

from dataclasses import dataclass
from typing import Protocol

import chex
import jax
import jax.numpy as jnp

from jmarl.envs.spaces import Space
from jmarl.literals import Distribution, StartState
from jmarl.policies.action_distributions import Actions, choose, make_actions
from jmarl.types import (
    Context,
    Evaluation,
    Memory,
    Noise,
    Params,
    PolicyInput,
    PolicyOutput,
    float_dtype,
)


class Actor(Protocol):
    """What a policy samples from. Recurrent halves read sequences `[L, B, …]` and the memory before
    them, others any leading axes and `()`."""

    @property
    def recurrent(self) -> bool: ...

    def init(self, key: jax.Array) -> Params: ...

    def memory(self, num_envs: int) -> Memory: ...

    def __call__(
        self, params: Params, memory: Memory, seen: PolicyInput
    ) -> tuple[Memory, jax.Array, jax.Array]:
        """The memory after, logits or means `[…, n, A]`, and the scale of continuous actions,
        `[A]` or `[n, A]`."""
        ...


class Critic(Protocol):
    """What values every agent's view."""

    @property
    def recurrent(self) -> bool: ...

    @property
    def value_head(self) -> tuple[str, ...]:
        """Where in its parameters the last layer `{kernel, bias}` is."""
        ...

    @property
    def reads_state(self) -> bool: ...

    def init(self, key: jax.Array) -> Params: ...

    def memory(self, num_envs: int) -> Memory: ...

    def __call__(
        self, params: Params, memory: Memory, seen: PolicyInput
    ) -> tuple[Memory, jax.Array]:
        """The memory after, and values `[…, n]`."""
        ...


@dataclass(frozen=True)
class ActorCriticPolicy:
    """Parameters and memory are `{"actor": …, "critic": …}`."""

    actor: Actor
    critic: Critic
    num_agents: int
    space: Space
    distribution: Distribution = "gaussian"  # of continuous actions
    start_state: StartState = "stored"  # memory before the sequences that are learned from

    @property
    def actions(self) -> Actions:
        return make_actions(self.space, self.distribution)

    @property
    def value_head(self) -> tuple[str, ...]:
        return ("critic", *self.critic.value_head)

    @property
    def recurrent(self) -> bool:
        return self.actor.recurrent or self.critic.recurrent

    @property
    def critic_part(self) -> str:
        return "critic"

    @property
    def reads_state(self) -> bool:
        return self.critic.reads_state

    def init(self, key: jax.Array) -> Params:
        actor_key, critic_key = jax.random.split(key)
        return {"actor": self.actor.init(actor_key), "critic": self.critic.init(critic_key)}

    def memory(self, num_envs: int) -> Memory:
        return {"actor": self.actor.memory(num_envs), "critic": self.critic.memory(num_envs)}

    def draw_noise(self, key: jax.Array, steps: int) -> Noise:
        shape = (steps, self.num_agents, self.space.size)
        return self.actions.noise(key, shape, float_dtype())

    def act(
        self,
        params: Params,
        noise: Noise,
        memory: Memory,
        seen: PolicyInput,
        deterministic: bool | jax.Array = False,
    ) -> tuple[Memory, PolicyOutput]:
        chex.assert_rank(seen.obs, 3)
        chex.assert_axis_dimension(seen.obs, 1, self.num_agents)
        step = self._as_sequence(seen)
        actor_memory, logits, scale = self.actor(params["actor"], memory["actor"], step)
        critic_memory, value = self.critic(params["critic"], memory["critic"], step)
        logits, value = self._last(logits), self._last(value)
        action, log_prob = choose(
            self.actions, noise, logits, scale, seen.action_mask, deterministic
        )
        after = {"actor": actor_memory, "critic": critic_memory}
        return after, PolicyOutput(action, log_prob, value)

    def evaluate(
        self, params: Params, start: Memory, context: Context, seen: PolicyInput, action: jax.Array
    ) -> Evaluation:
        del context
        chex.assert_axis_dimension(seen.obs, -2, self.num_agents)
        start = self.start(start)
        _, logits, scale = self.actor(params["actor"], start["actor"], seen)
        _, value = self.critic(params["critic"], start["critic"], seen)
        log_prob, entropy = self.actions.evaluate(logits, scale, seen.action_mask, action)
        return Evaluation(log_prob, entropy, value)

    def start(self, stored: Memory) -> Memory:
        """The memory that sequences start from, given that of the rollout."""
        return jax.tree.map(jnp.zeros_like, stored) if self.start_state == "zero" else stored

    def value(
        self, params: Params, keys: jax.Array, memory: Memory, seen: PolicyInput
    ) -> jax.Array:
        del keys
        return self._last(
            self.critic(params["critic"], memory["critic"], self._as_sequence(seen))[1]
        )

    def _as_sequence(self, seen: PolicyInput) -> PolicyInput:
        """One step `[E, …]` as a sequence of length one, where there is memory."""
        return jax.tree.map(lambda x: x[None], seen) if self.recurrent else seen

    def _last(self, x: jax.Array) -> jax.Array:
        return x[0] if self.recurrent else x
