"""MAT as a policy: acts agent after agent with a cache, is trained in one parallel pass."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.distributions import Actions, make_actions
from jmarl.networks.layers import apply
from jmarl.networks.mat import Decoder, Encoder
from jmarl.spaces import Box, Space
from jmarl.types import Decision, Evaluation, Perception


@dataclass(frozen=True)
class MatPolicy:
    """One transformer for the N agents of a team."""

    num_agents: int
    obs_size: int
    space: Space
    n_embd: int = 64
    n_head: int = 1
    n_block: int = 1

    @property
    def continuous(self) -> bool:
        return isinstance(self.space, Box)

    @property
    def actions(self) -> Actions:
        return make_actions(self.space)

    @property
    def encoder(self) -> Encoder:
        return Encoder(self.n_embd, self.n_head, self.n_block)

    @property
    def decoder(self) -> Decoder:
        return Decoder(self.space.size, self.n_embd, self.n_head, self.n_block, self.continuous)

    def init(self, key: jax.Array) -> Any:
        encoder_key, decoder_key = jax.random.split(key)
        obs = jnp.zeros((1, self.num_agents, self.obs_size))
        rep = jnp.zeros((1, self.num_agents, self.n_embd))
        tokens = jnp.zeros((1, self.num_agents, self.token_size))
        return {
            "encoder": self.encoder.init(encoder_key, obs)["params"],
            "decoder": self.decoder.init(decoder_key, tokens, rep)["params"],
        }

    def memory(self, num_envs: int) -> tuple[()]:
        del num_envs
        return ()

    def act(
        self,
        params: Any,
        key: jax.Array,
        memory: tuple[()],
        seen: Perception,
        deterministic: bool = False,
    ) -> tuple[tuple[()], Decision]:
        """Agents choose in turn, each knowing what those before it chose."""
        actions, scale = self.actions, self._scale(params)
        decoder, weights = self.decoder, params["decoder"]
        value, rep = apply(self.encoder, params["encoder"], seen.obs)

        def turn(carry: tuple, agent: tuple) -> tuple:
            token, cache = carry
            i, rep_i, mask, key = agent
            logits, cache = apply(decoder, weights, token, rep_i, cache, i, method="step")
            if deterministic:
                action = actions.mode(logits, scale, mask)
            else:
                action = actions.sample(key, logits, scale, mask)
            log_prob = actions.log_prob(logits, scale, mask, action)
            return (self._token(action), cache), (action, log_prob)

        n = self.num_agents
        first = (self._start(seen.obs), decoder.empty_cache(rep))
        agents = (
            jnp.arange(n),
            jnp.moveaxis(rep, -2, 0),
            jnp.moveaxis(seen.action_mask, -2, 0),
            jax.random.split(key, n),
        )
        _, (action, log_prob) = lax.scan(turn, first, agents)
        return memory, Decision(jnp.moveaxis(action, 0, 1), jnp.moveaxis(log_prob, 0, 1), value)

    def evaluate(self, params: Any, seen: Perception, action: jax.Array) -> Evaluation:
        """All agents in one pass; the causal masks keep each from seeing later choices."""
        value, rep = apply(self.encoder, params["encoder"], seen.obs)
        before = self._token(action)[..., :-1, :]
        tokens = jnp.concatenate([self._start(seen.obs)[..., None, :], before], axis=-2)
        logits = apply(self.decoder, params["decoder"], tokens, rep)
        scale, mask = self._scale(params), seen.action_mask
        return Evaluation(
            log_prob=self.actions.log_prob(logits, scale, mask, action),
            entropy=self.actions.entropy(logits, scale, mask),
            value=value,
        )

    def value(self, params: Any, memory: tuple[()], seen: Perception) -> jax.Array:
        del memory
        return apply(self.encoder, params["encoder"], seen.obs)[0]

    @property
    def token_size(self) -> int:
        """A discrete token has one entry more, which marks the start."""
        return self.space.size + (not self.continuous)

    def _scale(self, params: Any) -> jax.Array:
        if not self.continuous:
            return jnp.ones(())
        return apply(self.decoder, params["decoder"], method="std")

    def _start(self, obs: jax.Array) -> jax.Array:
        """[…, token]: what the first agent is told of those before it."""
        token = jnp.zeros((*obs.shape[:-2], self.token_size), obs.dtype)
        return token if self.continuous else token.at[..., 0].set(1.0)

    def _token(self, action: jax.Array) -> jax.Array:
        """[…, token]: what the next agent is told of an action."""
        chosen = self.actions.encode(action)
        if self.continuous:
            return chosen
        return jnp.concatenate([jnp.zeros_like(chosen[..., :1]), chosen], axis=-1)
