"""MAT as a policy: acts agent after agent with a cache, is trained in one parallel pass."""

from dataclasses import dataclass
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax import lax

from jmarl.envs.spaces import Box, Discrete, Space
from jmarl.literals import AgentOrder, Distribution, Precision, Transformer
from jmarl.networks.convolution import Images
from jmarl.networks.layers import apply
from jmarl.networks.mat import LOG_STD, Features, Mat, Model, TurnMemory, std
from jmarl.networks.mat_variants import VARIANTS, MatDec
from jmarl.networks.precision import to_compute_dtype
from jmarl.policies.action_distributions import Actions, choose, make_actions
from jmarl.policies.agent_order import Order, draw, to_agents, to_agents_smoothly, to_turns
from jmarl.policies.base import one_decision, real_features
from jmarl.types import Evaluation, Noise, Params, PolicyInput, PolicyOutput, float_dtype


@dataclass(frozen=True)
class MatPolicy:
    """One transformer for the N agents of a team."""

    obs_sizes: tuple[int, ...]  # [N]; observations are padded to the widest
    space: Space
    n_embd: int = 64
    n_head: int = 1
    n_block: int = 1
    variant: Transformer = "mat"
    share_actor: bool = True  # of mat_dec
    agent_order: AgentOrder = "fixed"
    precision: Precision = "float32"
    distribution: Distribution = "gaussian"  # of continuous actions
    log_std: float = LOG_STD  # of their noise at the start
    images: Images | None = None  # how observations are read; None: they are vectors

    @property
    def num_agents(self) -> int:
        return len(self.obs_sizes)

    @property
    def continuous(self) -> bool:
        return isinstance(self.space, Box)

    @property
    def actions(self) -> Actions:
        return make_actions(self.space, self.distribution)

    @property
    def model(self) -> Any:
        sizes = (self.space.size, self.n_embd, self.n_head, self.n_block)
        one_hot = isinstance(self.space, Discrete)
        shape = (*sizes, self.continuous, one_hot, self.log_std, self.images)
        if self.variant == "mat_dec":
            return MatDec(*shape, share_actor=self.share_actor)
        return {"mat": Mat, **VARIANTS}[self.variant](*shape)

    @property
    def value_head(self) -> tuple[str, ...]:
        return (*self.model.value_head, "out")

    @property
    def recurrent(self) -> bool:
        return False

    @property
    def critic_part(self) -> None:
        return None

    @property
    def reads_state(self) -> bool:
        return False

    def init(self, key: jax.Array) -> Params:
        def once(model: Model, obs: jax.Array, tokens: jax.Array) -> None:
            model.decode(tokens, model.encode(obs))

        obs = jnp.zeros((1, self.num_agents, max(self.obs_sizes)))
        tokens = jnp.zeros((1, self.num_agents, self.token_size))
        return self.model.init(key, obs, tokens, method=once)["params"]

    def memory(self, num_envs: int) -> tuple[()]:
        del num_envs
        return ()

    def draw_noise(self, key: jax.Array, steps: int) -> tuple[Order, Noise]:
        """The order of turns, and what each agent's choice is drawn with."""
        order_key, act_key = jax.random.split(key)
        order = None
        if self.agent_order == "random":
            order = draw(order_key, steps, self.num_agents)
        shape = (steps, self.num_agents, self.space.size)
        return order, self.actions.noise(act_key, shape, float_dtype())

    def act(
        self,
        params: Params,
        noise: tuple[Order, Noise],
        memory: tuple[()],
        seen: PolicyInput,
        deterministic: bool | jax.Array = False,
    ) -> tuple[tuple[()], PolicyOutput]:
        """Agents act in the order that `PolicyOutput.context` records."""
        chex.assert_shape(seen.obs, (None, self.num_agents, max(self.obs_sizes)))
        order, points = noise
        seen = _in_order(order, seen)
        features = self.encode(params, order, seen.obs)
        play = self._in_turn if self.model.sequential else self._at_once
        chosen = play(params, points, features, seen, deterministic)
        return memory, PolicyOutput(*(to_agents(order, x) for x in chosen), context=order)

    def _in_turn(
        self,
        params: Params,
        noise: Noise,
        features: Features,
        seen: PolicyInput,
        deterministic: bool | jax.Array,
    ) -> tuple[jax.Array, ...]:
        """Agents choose one after the other, each knowing what those before it chose."""
        model, scale, n = self.model, self.scale(params), self.num_agents

        def turn(
            carry: tuple[jax.Array, TurnMemory], agent: tuple[Any, ...]
        ) -> tuple[tuple[jax.Array, TurnMemory], tuple[jax.Array, ...]]:
            token, kept = carry
            i, features, mask, noise = agent
            given = to_compute_dtype(token, self.precision)
            logits, value, kept = apply(model, params, given, features, kept, i, method="step")
            action, log_prob = choose(self.actions, noise, logits, scale, mask, deterministic)
            return (self.token(action), kept), (action, log_prob, value)

        first = (self.start_token(seen.obs), apply(model, params, features, method="start"))
        each = (features, seen.action_mask, noise)
        by_agent = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), each)
        _, chosen = lax.scan(turn, first, (jnp.arange(n), *by_agent))
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), chosen)

    def _at_once(
        self,
        params: Params,
        noise: Noise,
        features: Features,
        seen: PolicyInput,
        deterministic: bool | jax.Array,
    ) -> tuple[jax.Array, ...]:
        logits, value = apply(self.model, params, None, features, method="decode")
        scale = self.scale(params)
        return *choose(self.actions, noise, logits, scale, seen.action_mask, deterministic), value

    def evaluate(
        self, params: Params, start: tuple[()], context: Order, seen: PolicyInput, action: jax.Array
    ) -> Evaluation:
        """All agents in one pass; the causal masks keep each from seeing later choices."""
        del start
        seen, action = _in_order(context, seen), to_turns(context, action)
        features = self.encode(params, context, seen.obs)
        before = self.token(action)[..., :-1, :]
        tokens = jnp.concatenate([self.start_token(seen.obs)[..., None, :], before], axis=-2)
        given = to_compute_dtype(tokens, self.precision)
        logits, value = apply(self.model, params, given, features, method="decode")
        scale, mask = self.scale(params), seen.action_mask
        log_prob, entropy = self.actions.evaluate(logits, scale, mask, action)
        by_turn = (log_prob, entropy, value)
        return Evaluation(*(to_agents_smoothly(context, x) for x in by_turn))

    def encode(self, params: Params, order: Order, obs: jax.Array) -> Features:
        """`obs` by turn."""
        real = real_features(self.obs_sizes)
        if real is not None and order is not None:
            real = to_turns(order, jnp.broadcast_to(real, obs.shape))
        return apply(
            self.model, params, to_compute_dtype(obs, self.precision), real, method="encode"
        )

    def value(
        self, params: Params, keys: jax.Array, memory: tuple[()], seen: PolicyInput
    ) -> jax.Array:
        """Where values depend on actions, these are drawn, as in the reference."""
        if self.model.valued_by_actions:
            noise = one_decision(self, keys)
            return self.act(params, noise, memory, seen)[1].value
        features = self.encode(params, None, seen.obs)
        return features[0]

    @property
    def token_size(self) -> int:
        """A discrete token has one entry more, which marks the start."""
        return self.space.size + (not self.continuous)

    def scale(self, params: Params) -> jax.Array:
        """[A]. The reference's σ is of its Gaussian; others have exp(log_std), as MAPPO has."""
        if not self.continuous:
            return jnp.ones(())
        log_std = apply(self.model, params, method="noise")
        return std(log_std) if self.distribution == "gaussian" else jnp.exp(log_std)

    def start_token(self, obs: jax.Array) -> jax.Array:
        """[…, token]: what the first agent reads in place of an action before it."""
        token = jnp.zeros((*obs.shape[:-2], self.token_size), obs.dtype)
        return token if self.continuous else token.at[..., 0].set(1.0)

    def token(self, action: jax.Array) -> jax.Array:
        """[…, token]: what the next agent reads of an action."""
        chosen = self.actions.encode(action)
        if self.continuous:
            return chosen
        return jnp.concatenate([jnp.zeros_like(chosen[..., :1]), chosen], axis=-1)


def _in_order(order: Order, seen: PolicyInput) -> PolicyInput:
    obs, mask = seen.obs, seen.action_mask
    return seen._replace(
        obs=to_turns(order, obs), action_mask=None if mask is None else to_turns(order, mask)
    )
