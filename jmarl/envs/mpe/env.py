"""A scenario played in many worlds at once: actions in, physics, what is seen and paid out."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from jmarl.envs.base import EnvSpec, Team, keys_per_world
from jmarl.envs.mpe import actions as act
from jmarl.envs.mpe.world import Cast, World, move
from jmarl.errors import ConfigError, check_bool, check_choice, check_int
from jmarl.types import TimeStep


class Scenario(Protocol):
    """Where things start, what an agent sees, what it is paid. A frozen dataclass whose fields
    are the scenario's options, checked in `__post_init__`."""

    name: ClassVar[str]

    @property
    def cast(self) -> Cast: ...

    def start(self, keys: jax.Array) -> World:
        """`keys` `[E]`: one for each world."""
        ...

    def observe(self, world: World) -> list[jax.Array]:
        """Blocks `[n, O_block, E]` of like agents, in agent order."""
        ...

    def reward(self, world: World) -> jax.Array:
        """[N, E]"""
        ...


class MpeState(struct.PyTreeNode):
    """All worlds of a batch are at the same step of their episodes, so they end together."""

    world: World
    step: jax.Array  # [] int32: steps taken in the running episode


@dataclass(frozen=True)
class Mpe:
    """E particle worlds of one scenario, as Farama's mpe2 (or on-policy's fork) plays it."""

    scenario: Scenario
    actions: str | None = None  # None: factored where some agent moves and speaks, else discrete
    episode_length: int = 25
    agent_ids: bool = False  # append a one-hot agent id to every observation
    spec: EnvSpec = field(init=False)

    DIALECTS: ClassVar = ("mpe2", "onpolicy")
    ACTIONS: ClassVar = ("discrete", "continuous", "multidiscrete")

    def __post_init__(self) -> None:
        check_int("episode_length", self.episode_length, low=1)
        check_bool("agent_ids", self.agent_ids)
        if self.actions is None:
            factored = act.moves_and_speaks(self.scenario.cast)
            object.__setattr__(self, "actions", "multidiscrete" if factored else "discrete")
        check_choice("actions", self.actions, self.ACTIONS)
        object.__setattr__(self, "spec", self._describe())

    @property
    def dialect(self) -> str:
        return getattr(self.scenario, "dialect", "mpe2")

    def _describe(self) -> EnvSpec:
        cast = self.scenario.cast
        team_names = list(dict.fromkeys(agent.team for agent in cast.agents))
        blocks = jax.eval_shape(
            lambda: self._observe(self.scenario.start(jax.random.split(jax.random.key(0), 1)))
        )
        sizes = tuple(size for block in blocks for size in [block.shape[1]] * block.shape[0])
        assert self.actions is not None
        return EnvSpec(
            name=f"mpe/{self.scenario.name}",
            agents=tuple(agent.name for agent in cast.agents),
            teams=tuple(
                Team(name, tuple(i for i, agent in enumerate(cast.agents) if agent.team == name))
                for name in team_names
            ),
            obs_sizes=sizes,
            action_spaces=tuple(
                act.action_space(agent, cast.message_size, self.actions) for agent in cast.agents
            ),
            state_size=sum(sizes),
            episode_length=self.episode_length,
            dialect=self.dialect,
            agents_leave=False,
            in_step=True,
        )

    def reset(self, key: jax.Array, num_envs: int) -> tuple[MpeState, TimeStep]:
        state = self._start(keys_per_world(key, num_envs))
        obs, joint = self._views(state.world)
        never = jnp.zeros(num_envs, bool)
        reward = jnp.zeros((num_envs, self.spec.num_agents), obs.dtype)
        return state, self._time_step(obs, joint, reward, never, obs, joint)

    def step(self, key: jax.Array, state: MpeState, action: jax.Array) -> tuple[MpeState, TimeStep]:
        """`action`: `[E, N]` discrete, `[E, N, heads]` multidiscrete, `[E, N, D]` continuous."""
        num_envs = action.shape[0]
        played, seen = self.step_on(state, action)

        def begin_anew() -> tuple[MpeState, jax.Array, jax.Array]:
            fresh = self._start(keys_per_world(key, num_envs))
            return fresh, *self._views(fresh.world)

        # One branch for all worlds: a reset costs 1/episode_length of one in every step.
        over = played.step >= self.episode_length
        state, obs, joint = lax.cond(over, begin_anew, lambda: (played, seen.obs, seen.state))
        truncated = jnp.broadcast_to(over, (num_envs,))
        return state, seen._replace(obs=obs, state=joint, truncated=truncated)

    def step_on(self, state: MpeState, action: jax.Array) -> tuple[MpeState, TimeStep]:
        """The same in an episode without end."""
        world = self._act(state.world, self.spec.clip(action))
        reward = self.scenario.reward(world).T
        obs, joint = self._views(world)
        never = jnp.zeros(action.shape[0], bool)
        after = self._time_step(obs, joint, reward, never, obs, joint)
        return MpeState(world, state.step + 1), after

    def _start(self, keys: jax.Array) -> MpeState:
        return MpeState(self.scenario.start(keys), jnp.zeros((), jnp.int32))

    def _act(self, world: World, action: jax.Array) -> World:
        assert self.actions is not None
        cast, mpe2 = self.scenario.cast, self.dialect == "mpe2"
        control, message = act.decode(cast, self.actions, action, direction=1 if mpe2 else -1)
        moved = move(cast, world, control, position_first=mpe2)
        return moved.replace(message=message)

    def _observe(self, world: World) -> list[jax.Array]:
        """The scenario's blocks, with agent ids if asked for."""
        blocks = self.scenario.observe(world)
        if not self.agent_ids:
            return blocks
        n, num_envs = world.pos.shape[0], world.pos.shape[-1]
        ids = jnp.broadcast_to(jnp.eye(n)[:, :, None], (n, n, num_envs))
        stops = np.cumsum([block.shape[0] for block in blocks])[:-1]
        parts = jnp.split(ids, stops)
        return [jnp.concatenate(pair, axis=1) for pair in zip(blocks, parts, strict=True)]

    def _views(self, world: World) -> tuple[jax.Array, jax.Array]:
        """Padded observations `[E, N, O]` and the global state `[E, S]`, which is all agents'
        observations one after the other, as mpe2 defines it."""
        blocks = self._observe(world)
        wide = self.spec.obs_size
        padded = [jnp.pad(b, ((0, 0), (0, wide - b.shape[1]), (0, 0))) for b in blocks]
        joint = jnp.concatenate([b.reshape(-1, b.shape[-1]) for b in blocks])
        return jnp.moveaxis(jnp.concatenate(padded), -1, 0), joint.T

    def _time_step(
        self,
        obs: jax.Array,
        joint: jax.Array,
        reward: jax.Array,
        truncated: jax.Array,
        final_obs: jax.Array,
        final_state: jax.Array,
    ) -> TimeStep:
        legal = self.spec.action_mask
        num_envs, num_agents = reward.shape
        mask = jnp.broadcast_to(legal[None], (num_envs, *legal.shape))
        return TimeStep(
            obs=obs,
            state=joint,
            action_mask=mask,
            active=jnp.ones((num_envs, num_agents), bool),
            reward=reward,
            terminated=jnp.zeros((num_envs, num_agents), bool),
            truncated=truncated,
            final_obs=final_obs,
            final_state=final_state,
            final_action_mask=mask,
        )


def refuse_dialect(scenario: type, dialect: Any) -> None:
    """Only scenarios with a `dialect` field are played by more than one set of rules."""
    check_choice("dialect", dialect, Mpe.DIALECTS)
    if dialect != "mpe2" and "dialect" not in getattr(scenario, "__dataclass_fields__", {}):
        raise ConfigError(
            f"dialect={dialect!r} is not defined for {scenario.name}; only dialect='mpe2' is."  # type: ignore[attr-defined]
        )
