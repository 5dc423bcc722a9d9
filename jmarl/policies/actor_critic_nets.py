"""The networks of MAPPO and IPPO: an actor that agents share, and a critic of their own views or of
a joint one."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jmarl.envs.spaces import Box, Space
from jmarl.literals import AgentId, CriticInput, Precision
from jmarl.networks.layers import apply
from jmarl.networks.precision import to_compute_dtype
from jmarl.networks.torso import Net, Shape
from jmarl.policies.base import real_features
from jmarl.types import Memory, Params, PolicyInput, float_dtype


@dataclass(frozen=True)
class NetActor:
    """One network that the n agents of a player share; each reads its own view."""

    obs_sizes: tuple[int, ...]  # [n]; observations are padded to the widest
    space: Space
    shape: Shape
    gain: float = 0.01  # of the output
    log_std: float = 0.0  # at the start
    squash_mean: bool = False  # Gaussian means within the bounds, by a sigmoid
    agent_id: AgentId = "none"
    precision: Precision = "float32"

    @property
    def recurrent(self) -> bool:
        return self.shape.recurrent

    @property
    def continuous(self) -> bool:
        return isinstance(self.space, Box)

    @property
    def net(self) -> Net:
        log_std = self.log_std if self.continuous else None
        images = 0 if self.shape.images is None else 1
        return Net(self.shape, self.space.size, self.gain, log_std, images)

    def init(self, key: jax.Array) -> Params:
        seen = _zeros(len(self.obs_sizes), max(self.obs_sizes))
        x = _with_agent_ids(seen.obs, self.agent_id)
        return _init(self.net, key, x, self.agent_id, len(self.obs_sizes), self.memory(1))

    def memory(self, num_envs: int) -> Memory:
        """The GRU's zero state `[E, n, layers, H]`."""
        return _memory(self.shape, num_envs, len(self.obs_sizes))

    def __call__(
        self, params: Params, memory: Memory, seen: PolicyInput
    ) -> tuple[Memory, jax.Array, jax.Array]:
        return self.read(params, memory, seen, self.real_inputs)

    @property
    def real_inputs(self) -> jax.Array | None:
        """`[n, D]`: 0 where an agent's own input is padding; None where there is none."""
        return _real_inputs(self.obs_sizes, self.agent_id)

    def read(
        self, params: Params, memory: Memory, seen: PolicyInput, real: jax.Array | None
    ) -> tuple[Memory, jax.Array, jax.Array]:
        """As a call, but for any agents, whose inputs are `real` where they are not padding."""
        x = to_compute_dtype(_with_agent_ids(seen.obs, self.agent_id), self.precision)
        logits, memory = _run(self.net, params, x, self.agent_id, memory, seen, real)
        scale = jnp.exp(params["log_std"]) if self.continuous else jnp.ones(())
        if isinstance(self.space, Box) and self.squash_mean:
            logits = self.space.from_unit(jax.nn.sigmoid(logits))
        return memory, logits, scale


@dataclass(frozen=True)
class NetCritic:
    """One network that values all n agents of a player, from their own views or a joint one."""

    obs_sizes: tuple[int, ...]  # [n]
    state_size: int
    shape: Shape
    reads: CriticInput = "all"
    team_obs_sizes: tuple[int, ...] | None = None  # where the team is larger than the player
    gain: float = 1.0  # of the output
    agent_id: AgentId = "none"
    precision: Precision = "float32"

    @property
    def recurrent(self) -> bool:
        return self.shape.recurrent

    @property
    def value_head(self) -> tuple[str, ...]:
        return ("out",)

    @property
    def reads_state(self) -> bool:
        return self.reads in ("state", "all_and_state")

    @property
    def num_agents(self) -> int:
        return len(self.obs_sizes)

    @property
    def net(self) -> Net:
        return Net(self.shape, 1, self.gain, images=self._images)

    def init(self, key: jax.Array) -> Params:
        seen = _zeros(self.num_agents, max(self.obs_sizes), self.state_size, self.team_obs_sizes)
        x = self._input(seen)
        return _init(self.net, key, x, self.agent_id, self.num_agents, self.memory(1))

    def memory(self, num_envs: int) -> Memory:
        """The GRU's zero state `[E, rows, layers, H]`."""
        return _memory(self.shape, num_envs, self._rows)

    def __call__(
        self, params: Params, memory: Memory, seen: PolicyInput
    ) -> tuple[Memory, jax.Array]:
        x = to_compute_dtype(self._input(seen), self.precision)
        real = None if self._joint else _real_inputs(self.obs_sizes, self.agent_id)
        value, memory = _run(self.net, params, x, self.agent_id, memory, seen, real)
        return memory, jnp.broadcast_to(value[..., 0], (*value.shape[:-2], self.num_agents))

    @property
    def _joint(self) -> bool:
        """Whether the network reads what is the same for all agents."""
        return self.reads != "own"

    @property
    def _images(self) -> int:
        """How many images its inputs begin with: nobody's, if it reads the global state alone."""
        if self.shape.images is None or self.reads == "state":
            return 0
        return len(self.team_obs_sizes or self.obs_sizes) if self._joint else 1

    @property
    def _rows(self) -> int:
        """A critic of the joint view values all agents alike until their ids tell them apart."""
        return 1 if self._joint and self.agent_id != "obs" else self.num_agents

    def _input(self, seen: PolicyInput) -> jax.Array:
        """`[…, n, D]`, or `[…, 1, D]` where all agents' values are the same."""
        if not self._joint:
            return _with_agent_ids(seen.obs, self.agent_id)
        joint = self._joint_obs(seen)
        views = {"all": [joint], "all_and_state": [joint, seen.state], "state": [seen.state]}
        x = jnp.concatenate(views[self.reads], axis=-1)[..., None, :]
        x = jnp.broadcast_to(x, (*x.shape[:-2], self._rows, x.shape[-1]))
        return _with_agent_ids(x, self.agent_id)

    def _joint_obs(self, seen: PolicyInput) -> jax.Array:
        """`[…, ΣO]`: the team's observations one after the other, without padding."""
        sizes, obs = self.obs_sizes, seen.obs
        if self.team_obs_sizes is not None and seen.team_obs is not None:
            sizes, obs = self.team_obs_sizes, seen.team_obs
        if len(set(sizes)) == 1:
            return obs.reshape(*obs.shape[:-2], -1)
        return jnp.concatenate([obs[..., i, :size] for i, size in enumerate(sizes)], axis=-1)


def _zeros(
    agents: int, obs_size: int, state_size: int = 0, team: tuple[int, ...] | None = None
) -> PolicyInput:
    """The input of one world, for shapes."""
    return PolicyInput(
        obs=jnp.zeros((1, agents, obs_size)),
        state=jnp.zeros((1, state_size)),
        action_mask=None,
        team_obs=None if team is None else jnp.zeros((1, len(team), max(team))),
    )


def _init(
    net: Net, key: jax.Array, x: jax.Array, agent_id: AgentId, agents: int, memory: Memory
) -> Params:
    x, state = (x[None], memory) if net.shape.recurrent else (x, None)
    return net.init(key, x, _ids(agent_id, agents), state, None)["params"]


def _run(
    net: Net,
    params: Params,
    x: jax.Array,
    agent_id: AgentId,
    memory: Memory,
    seen: PolicyInput,
    real: jax.Array | None,
) -> tuple[jax.Array, Memory]:
    """Outputs, and the memory after."""
    state, agents = (memory if net.shape.recurrent else None), seen.obs.shape[-2]
    out, state = apply(net, params, x, _ids(agent_id, agents), state, seen.episode_start, real)
    return out, state if net.shape.recurrent else ()


def _memory(shape: Shape, num_envs: int, rows: int) -> Memory:
    if not shape.recurrent:
        return ()
    return jnp.zeros((num_envs, rows, shape.gru_layers, shape.hidden[-1]), float_dtype())


def _ids(agent_id: AgentId, agents: int) -> jax.Array | None:
    """`[n, n]`: one-hot ids that join after the representation."""
    return jnp.eye(agents) if agent_id == "features" else None


def _with_agent_ids(x: jax.Array, agent_id: AgentId) -> jax.Array:
    """`[…, n, D]` → `[…, n, D + n]` where ids are a part of the input."""
    if agent_id != "obs":
        return x
    agents = x.shape[-2]
    ids = jnp.broadcast_to(jnp.eye(agents), (*x.shape[:-1], agents))
    return jnp.concatenate([x, ids.astype(x.dtype)], axis=-1)


def _real_inputs(obs_sizes: tuple[int, ...], agent_id: AgentId) -> jax.Array | None:
    """`[n, D]`: 0 where an agent's own input is padding; None where there is none."""
    real = real_features(obs_sizes)
    if real is None or agent_id != "obs":
        return real
    return jnp.concatenate([real, jnp.ones((len(obs_sizes), len(obs_sizes)))], axis=-1)
