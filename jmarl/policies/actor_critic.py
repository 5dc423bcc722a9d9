"""MAPPO and IPPO as policies: an actor for each agent's own view, a critic for values."""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp

from jmarl.envs.spaces import Box, Space
from jmarl.literals import AgentId, CriticInput, Distribution, Precision, StartState
from jmarl.networks.layers import apply
from jmarl.networks.precision import narrow
from jmarl.networks.torso import Net, Shape
from jmarl.policies.action_distributions import Actions, choose, make_actions
from jmarl.policies.base import real_features
from jmarl.types import Decision, Evaluation, Perception, float_dtype


@dataclass(frozen=True)
class ActorCriticPolicy:
    """Two nets that the N agents of a group share."""

    obs_sizes: tuple[int, ...]  # [N]; observations are padded to the widest
    state_size: int
    space: Space
    shape: Shape = field(default_factory=Shape)
    critic_hidden: tuple[int, ...] | None = None  # None: as the actor's
    critic_head_hidden: tuple[int, ...] | None = None  # likewise
    critic_input: CriticInput = "all"
    team_obs_sizes: tuple[int, ...] | None = None  # where the team is larger than the group
    agent_id: AgentId = "none"
    actor_gain: float = 0.01
    critic_gain: float = 1.0
    log_std: float = 0.0
    squash_mean: bool = False  # Gaussian means within the bounds, by a sigmoid
    distribution: Distribution = "gaussian"  # of continuous actions
    start_state: StartState = "stored"  # of sequences that are learned from
    precision: Precision = "float32"

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
    def actor(self) -> Net:
        log_std = self.log_std if self.continuous else None
        return Net(self.shape, self.space.size, self.actor_gain, log_std)

    @property
    def critic(self) -> Net:
        return Net(self._critic_shape, 1, self.critic_gain)

    @property
    def value_head(self) -> tuple[str, ...]:
        return ("critic", "out")

    @property
    def recurrent(self) -> bool:
        return self.shape.recurrent

    @property
    def critic_part(self) -> str:
        return "critic"

    @property
    def reads_state(self) -> bool:
        return self.critic_input in ("state", "all_and_state")

    def init(self, key: jax.Array) -> Any:
        team = self.team_obs_sizes
        seen = Perception(
            obs=jnp.zeros((1, self.num_agents, max(self.obs_sizes))),
            state=jnp.zeros((1, self.state_size)),
            action_mask=None,
            team_obs=None if team is None else jnp.zeros((1, len(team), max(team))),
        )
        memory, params = self.memory(1), {}
        for part, part_key in zip(("actor", "critic"), jax.random.split(key), strict=True):
            x = self._time(self._input(part, seen))
            given = (x, self._ids(), memory.get(part), None)
            params[part] = self._net(part).init(part_key, *given)["params"]
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
        real = None if self._joint(part) else self._real_inputs()
        return apply(net, params[part], x, self._ids(), start.get(part), seen.fresh, real)

    def _joint(self, part: str) -> bool:
        """Whether the net reads what is the same for all agents."""
        return part == "critic" and self.critic_input != "own"

    def _real_inputs(self) -> jax.Array | None:
        """`[N, D]`: 0 where an agent's own input is padding; None where there is none."""
        real = real_features(self.obs_sizes)
        if real is None or self.agent_id != "obs":
            return real
        return jnp.concatenate([real, jnp.ones((self.num_agents, self.num_agents))], axis=-1)

    def _input(self, part: str, seen: Perception) -> jax.Array:
        """[…, N, D], or `[…, 1, D]` where a critic sees the same for all agents."""
        x = seen.obs
        if self._joint(part):
            joint = self._joint_obs(seen)
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

    def _joint_obs(self, seen: Perception) -> jax.Array:
        """`[…, ΣO]`: the team's observations one after the other, without padding."""
        sizes, obs = self.obs_sizes, seen.obs
        if self.team_obs_sizes is not None and seen.team_obs is not None:
            sizes, obs = self.team_obs_sizes, seen.team_obs
        if len(set(sizes)) == 1:
            return obs.reshape(*obs.shape[:-2], -1)
        return jnp.concatenate([obs[..., i, :size] for i, size in enumerate(sizes)], axis=-1)

    @property
    def _critic_rows(self) -> int:
        """A critic of the joint view values all agents alike until their ids tell them apart."""
        return 1 if self._joint("critic") and self.agent_id != "obs" else self.num_agents

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
        return jnp.eye(self.num_agents) if self.agent_id == "features" else None

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
        """[A]"""
        return jnp.exp(params["actor"]["log_std"]) if self.continuous else jnp.ones(())
