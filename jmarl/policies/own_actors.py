"""Actors that share no parameters, although one player has them all: learners that update agents
one after the other (HAPPO) choose one by its index, which may be traced."""

from dataclasses import dataclass

import jax

from jmarl.policies.actor_critic import ActorCriticPolicy
from jmarl.policies.actor_critic_nets import NetActor
from jmarl.types import Memory, Params, PolicyInput


@dataclass(frozen=True)
class OwnActors:
    """A network for each of n agents, all of one shape. Parameters are stacked, `[n, …]`."""

    net: NetActor  # of all n agents' observations, padded to the widest; without agent ids

    @property
    def recurrent(self) -> bool:
        return self.net.recurrent

    def init(self, key: jax.Array) -> Params:
        return jax.vmap(self.net.init)(jax.random.split(key, len(self.net.obs_sizes)))

    def memory(self, num_envs: int) -> Memory:
        return self.net.memory(num_envs)

    def __call__(
        self, params: Params, memory: Memory, seen: PolicyInput
    ) -> tuple[Memory, jax.Array, jax.Array]:
        """All agents at once; the scale of continuous actions is `[n, A]`."""

        def one(
            params: Params, memory: Memory, obs: jax.Array, real: jax.Array | None
        ) -> tuple[Memory, jax.Array, jax.Array]:
            return self.net.read(params, memory, seen._replace(obs=obs), real)

        # every agent keeps an agent axis, of length 1
        memory = jax.tree.map(lambda x: x[:, :, None], memory)
        real = self.net.real_inputs
        real = None if real is None else real[:, None]
        each = jax.vmap(one, in_axes=(0, 1, -3, 0), out_axes=(1, -3, 0))
        memory, logits, scale = each(params, memory, seen.obs[..., None, :], real)
        return jax.tree.map(lambda x: x[:, :, 0], memory), logits[..., 0, :], scale

    def one(
        self, params: Params, memory: Memory, seen: PolicyInput, agent: jax.Array | int
    ) -> tuple[Memory, jax.Array, jax.Array]:
        """A single agent: its own parameters, and memory and view with an agent axis of 1."""
        real = self.net.real_inputs
        return self.net.read(params, memory, seen, None if real is None else real[agent][None])


@dataclass(frozen=True)
class OwnActorsPolicy(ActorCriticPolicy):
    """Its actors and its critic can be evaluated one by one."""

    actor: OwnActors

    def evaluate_agent(
        self,
        params: Params,
        start: Memory,
        seen: PolicyInput,
        action: jax.Array,
        agent: jax.Array | int,
    ) -> tuple[jax.Array, jax.Array]:
        """Log-probability and entropy `[…, 1, K]` of one agent's recorded actions, under that
        agent's parameters; rows or sequences as in `evaluate`."""
        _, logits, scale = self.actor.one(params, self.start(start), seen, agent)
        return self.actions.evaluate(logits, scale, seen.action_mask, action)

    def evaluate_critic(self, params: Params, start: Memory, seen: PolicyInput) -> jax.Array:
        """Values `[…, n]`."""
        return self.critic(params, self.start(start), seen)[1]
