"""MAPPO and IPPO as policies: an actor for each agent's own view, a critic for values."""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp

from jmarl.choices import AgentId, CriticInput, Distribution, Precision, StartState
from jmarl.distributions import Actions, choose, make_actions
from jmarl.networks.actor_critic import Net, Shape
from jmarl.networks.precision import narrow
from jmarl.spaces import Box, Space
from jmarl.types import Decision, Evaluation, Perception, float_dtype


@dataclass(frozen=True)
class ActorCriticPolicy:
    """Two nets for the N agents of a group, shared by them or one pair each."""

    num_agents: int
    obs_size: int
    state_size: int
    space: Space
    shape: Shape = field(default_factory=Shape)
    critic_hidden: tuple[int, ...] | None = None  # None: as the actor's
    critic_head_hidden: tuple[int, ...] | None = None  # likewise
    critic_input: CriticInput = "all"
    agent_id: AgentId = "none"
    shared: bool = True
    actor_gain: float = 0.01
    critic_gain: float = 1.0
    log_std: float = 0.0
    squash_mean: bool = False  # Gaussian means within the bounds, by a sigmoid
    distribution: Distribution = "gaussian"  # of continuous actions
    start_state: StartState = "stored"  # of sequences that are learned from
    precision: Precision = "float32"

    @property
    def continuous(self) -> bool:
        return isinstance(self.space, Box)

    @property
    def actions(self) -> Actions:
        return make_actions(self.space, self.distribution)

    @property
    def actor(self) -> Net:
        log_std = self.log_std if self.continuous else None
        return Net(self.shape, self.space.size, self.actor_gain, log_std)

    @property
    def critic(self) -> Net:
        return Net(self._critic_shape, 1, self.critic_gain)

    @property
    def value_head(self) -> tuple[str, ...]:
        return ("critic", "out")

    def init(self, key: jax.Array) -> Any:
        seen = Perception(
            obs=jnp.zeros((1, self.num_agents, self.obs_size)),
            state=jnp.zeros((1, self.state_size)),
            action_mask=jnp.ones((1, self.num_agents, self.space.size), bool),
        )
        memory = self.memory(1)
        params = {}
        for part, part_key in zip(("actor", "critic"), jax.random.split(key), strict=True):
            net, x = self._net(part), self._time(self._input(part, seen))
            state = memory.get(part)
            if self.shared:
                params[part] = net.init(part_key, x, self._ids(), state, None)["params"]
            else:
                own = None if state is None else state[..., :1, :, :]
                one = (x[..., :1, :], None, own, None)
                keys = jax.random.split(part_key, self.num_agents)
                params[part] = jax.vmap(lambda k, net=net, one=one: net.init(k, *one))(keys)[
                    "params"
                ]
        return params

    def memory(self, num_envs: int) -> dict[str, jax.Array]:
        """Zero states `[E, N, layers, H]` of both GRUs, if there are any."""
        if not self.shape.recurrent:
            return {}
        layers = self.shape.gru_layers
        sizes = {
            "actor": (self.num_agents, layers, self.shape.hidden[-1]),
            "critic": (self._critic_rows, layers, self._critic_shape.hidden[-1]),
        }
        return {part: jnp.zeros((num_envs, *size), float_dtype()) for part, size in sizes.items()}

    def draw_noise(self, key: jax.Array, steps: int) -> Any:
        shape = (steps, self.num_agents, self.space.size)
        return self.actions.noise(key, shape, float_dtype())

    def act(
        self,
        params: Any,
        noise: Any,
        memory: dict[str, jax.Array],
        seen: Perception,
        deterministic: bool | jax.Array = False,
    ) -> tuple[dict[str, jax.Array], Decision]:
        """`Decision.context` is the memory as it was before."""
        logits, actor_state = self._step("actor", params, memory, seen)
        value, critic_state = self._step("critic", params, memory, seen)
        actions, scale, mask = self.actions, self._scale(params), seen.action_mask
        mean = self._squashed(logits)
        action, log_prob = choose(actions, noise, mean, scale, mask, deterministic)
        after = {"actor": actor_state, "critic": critic_state} if memory else memory
        return after, Decision(action, log_prob, self._for_all(value), context=memory or None)

    def evaluate(
        self, params: Any, context: Any, seen: Perception, action: jax.Array
    ) -> Evaluation:
        """Rows `[…, N]`; with GRUs sequences `[L, B, N]`, from the state stored at their start."""
        start = {part: state[0] for part, state in (context or {}).items()}
        if self.start_state == "zero":
            start = jax.tree.map(jnp.zeros_like, start)
        logits, _ = self._run("actor", params, start, seen)
        value, _ = self._run("critic", params, start, seen)
        mean, scale, mask = self._squashed(logits), self._scale(params), seen.action_mask
        log_prob, entropy = self.actions.evaluate(mean, scale, mask, action)
        return Evaluation(log_prob, entropy, self._for_all(value))

    def value(
        self, params: Any, keys: jax.Array, memory: dict[str, jax.Array], seen: Perception
    ) -> jax.Array:
        del keys
        return self._for_all(self._step("critic", params, memory, seen)[0])

    def _step(
        self, part: str, params: Any, memory: dict[str, jax.Array], seen: Perception
    ) -> tuple[jax.Array, Any]:
        """One step `[E, N, …]`: a sequence of length one where there is a GRU."""
        if not self.shape.recurrent:
            return self._run(part, params, memory, seen)
        out, state = self._run(part, params, memory, jax.tree.map(lambda x: x[None], seen))
        return out[0], state

    def _run(
        self, part: str, params: Any, start: dict[str, jax.Array], seen: Perception
    ) -> tuple[jax.Array, Any]:
        net, x = self._net(part), narrow(self._input(part, seen), self.precision)
        state, fresh = start.get(part), seen.fresh

        def apply(params: Any, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
            return net.apply({"params": params}, x, self._ids(), state, fresh)  # pyright: ignore

        if self.shared:
            return apply(params[part], x, state)

        def alone(params: Any, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
            grown = jax.tree.map(lambda s: s[..., None, :, :], state)
            out, state = apply(params, x[..., None, :], grown)
            return out[..., 0, :], jax.tree.map(lambda s: s[..., 0, :, :], state)

        each = jax.vmap(alone, in_axes=(0, -2, -3), out_axes=(-2, -3))
        return each(params[part], x, state)

    def _input(self, part: str, seen: Perception) -> jax.Array:
        """[…, N, D], or `[…, 1, D]` where a critic sees the same for all agents."""
        x = seen.obs
        if part == "critic" and self.critic_input != "own":
            joint = x.reshape(*x.shape[:-2], -1)
            views = {
                "all": [joint],
                "all_and_state": [joint, seen.state],
                "state": [seen.state],
            }[self.critic_input]
            x = jnp.concatenate(views, axis=-1)[..., None, :]
            x = jnp.broadcast_to(x, (*x.shape[:-2], self._critic_rows, x.shape[-1]))
        if self.agent_id == "obs":
            ids = jnp.broadcast_to(jnp.eye(self.num_agents), (*x.shape[:-1], self.num_agents))
            x = jnp.concatenate([x, ids.astype(x.dtype)], axis=-1)
        return x

    @property
    def _critic_rows(self) -> int:
        """A critic of the joint view values all agents alike until their ids tell them apart."""
        alike = self.critic_input != "own" and self.agent_id != "obs" and self.shared
        return 1 if alike else self.num_agents

    @property
    def _critic_shape(self) -> Shape:
        head = self.critic_head_hidden
        return replace(
            self.shape,
            hidden=self.critic_hidden or self.shape.hidden,
            head_hidden=self.shape.head_hidden if head is None else head,
        )

    def _net(self, part: str) -> Net:
        return self.actor if part == "actor" else self.critic

    def _ids(self) -> jax.Array | None:
        """A net of one's own needs no id."""
        return jnp.eye(self.num_agents) if self.agent_id == "features" and self.shared else None

    def _time(self, x: jax.Array) -> jax.Array:
        return x[None] if self.shape.recurrent else x

    def _for_all(self, value: jax.Array) -> jax.Array:
        """[…, 1 or N, 1] → […, N]."""
        return jnp.broadcast_to(value[..., 0], (*value.shape[:-2], self.num_agents))

    def _squashed(self, logits: jax.Array) -> jax.Array:
        if isinstance(self.space, Box) and self.squash_mean:
            return self.space.from_unit(jax.nn.sigmoid(logits))
        return logits

    def _scale(self, params: Any) -> jax.Array:
        """[A], or `[N, A]` with a net each."""
        return jnp.exp(params["actor"]["log_std"]) if self.continuous else jnp.ones(())
