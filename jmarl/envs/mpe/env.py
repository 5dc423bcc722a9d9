"""Many worlds of one scenario: decode actions, move, compute observations and rewards."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, Num

from jmarl.envs.base import EnvSpec, Team, keys_per_world
from jmarl.envs.mpe import actions as act
from jmarl.envs.mpe.world import Entities, World, move, where_worlds
from jmarl.errors import ConfigError, check_bool, check_choice, check_int
from jmarl.types import TimeStep

LONGEST = 2**31 - 1  # steps of an episode; an int32 counts them


class Scenario(Protocol):
    """Entities, initial state, observations and rewards. A frozen dataclass whose fields are the
    scenario's options, checked in `__post_init__`."""

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def entities(self) -> Entities: ...

    def start(self, keys: Key[Array, " E"]) -> World:
        """Initial states, from one key per world."""
        ...

    def observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """Blocks `[n, O_block, E]`, each of agents with equal observation sizes, in agent order."""
        ...

    def reward(self, world: World) -> Float[Array, "N E"]: ...


@runtime_checkable
class EarlyEnd(Protocol):
    """A scenario whose episodes may end in success."""

    terminate_on_success: bool

    def success(self, world: World) -> Bool[Array, " E"]: ...


@runtime_checkable
class Eventful(Protocol):
    """A scenario in which something happens between a move and its rewards."""

    def draw(self, keys: Key[Array, " E"]) -> Float[Array, "D E"]:
        """The random numbers of a step, from one key per world."""
        ...

    def happen(self, world: World, drawn: Float[Array, "D E"]) -> World: ...


@runtime_checkable
class Measured(Protocol):
    """A scenario with numbers to report."""

    def info(self, world: World) -> dict[str, Float[Array, " E"]]: ...


class MpeState(struct.PyTreeNode):
    """Worlds that end together share their step."""

    world: World
    step: Int[Array, "*E"]  # steps taken in the current episode


@dataclass(frozen=True)
class Mpe:
    """E particle worlds of one scenario, as Farama's mpe2 (or on-policy's fork) plays it."""

    scenario: Scenario
    actions: str | None = None  # None: multidiscrete if an agent moves and speaks, else discrete
    episode_length: int = 25
    agent_ids: bool = False  # append a one-hot agent id to every observation
    benchmark_data: bool = False  # report the scenario's numbers in `TimeStep.info`
    apart: bool = False  # each world counts its own steps, though all could end together
    spec: EnvSpec = field(init=False)

    DIALECTS: ClassVar = ("mpe2", "onpolicy")
    ACTIONS: ClassVar = ("discrete", "continuous", "multidiscrete")

    def __post_init__(self) -> None:
        check_int("episode_length", self.episode_length, low=1, high=LONGEST)
        check_bool("agent_ids", self.agent_ids)
        check_bool("benchmark_data", self.benchmark_data)
        if self.benchmark_data and not isinstance(self.scenario, Measured):
            raise ConfigError(f"benchmark_data=True: {self.scenario.name} defines no `info`.")
        if self.actions is None:
            factored = act.moves_and_speaks(self.scenario.entities)
            object.__setattr__(self, "actions", "multidiscrete" if factored else "discrete")
        check_choice("actions", self.actions, self.ACTIONS)
        object.__setattr__(self, "spec", self._make_spec())

    @property
    def dialect(self) -> str:
        return getattr(self.scenario, "dialect", "mpe2")

    @property
    def ends_early(self) -> bool:
        """Episodes may end in success."""
        return isinstance(self.scenario, EarlyEnd) and self.scenario.terminate_on_success

    @property
    def in_step(self) -> bool:
        """All worlds are at the same step of their episodes."""
        return not (self.apart or self.ends_early)

    def worlds_apart(self) -> "Mpe":
        """The same worlds, but any of them may be reset while the others go on."""
        return replace(self, apart=True)

    def _make_spec(self) -> EnvSpec:
        entities = self.scenario.entities
        team_names = list(dict.fromkeys(agent.team for agent in entities.agents))
        blocks = jax.eval_shape(
            lambda: self._observe(self.scenario.start(jax.random.split(jax.random.key(0), 1)))
        )
        sizes = tuple(size for block in blocks for size in [block.shape[1]] * block.shape[0])
        assert self.actions is not None
        return EnvSpec(
            name=f"mpe/{self.scenario.name}",
            agents=tuple(agent.name for agent in entities.agents),
            teams=tuple(
                Team(
                    name, tuple(i for i, agent in enumerate(entities.agents) if agent.team == name)
                )
                for name in team_names
            ),
            obs_sizes=sizes,
            action_spaces=tuple(
                act.action_space(agent, entities.message_size, self.actions)
                for agent in entities.agents
            ),
            state_size=sum(sizes),
            episode_length=self.episode_length,
            dialect=self.dialect,
            agents_leave=False,
            in_step=self.in_step,
        )

    def reset(self, key: Key[Array, "*worlds"], num_envs: int) -> tuple[MpeState, TimeStep]:
        state = self._start(keys_per_world(key, num_envs))
        reward = jnp.zeros((num_envs, self.spec.num_agents), state.world.pos.dtype)
        return state, self._time_step(state.world, reward)

    def step(
        self, key: Key[Array, "*worlds"], state: MpeState, action: Num[Array, "E N *entries"]
    ) -> tuple[MpeState, TimeStep]:
        """`action`: `[E, N]` discrete, `[E, N, heads]` multidiscrete, `[E, N, D]` continuous."""
        num_envs = action.shape[0]
        eventful = isinstance(self.scenario, Eventful)  # else only resets use keys
        if eventful:
            key = keys_per_world(key, num_envs)
        stepped, timestep = self.step_without_reset(key, state, action)
        # Worlds that end together share one flag.
        over = stepped.step >= self.episode_length if self.in_step else timestep.over

        def restart() -> tuple[MpeState, Array, Array]:
            keys = _derived(key, 1) if eventful else keys_per_world(key, num_envs)
            initial = self._start(keys)
            if not self.in_step:
                initial = jax.tree.map(partial(where_worlds, over), initial, stepped)
            return initial, *self._observations(initial.world)

        # The cost of a reset is added only to steps in which a world ends.
        state, obs, joint = lax.cond(
            over.any(), restart, lambda: (stepped, timestep.obs, timestep.state)
        )
        return state, timestep._replace(obs=obs, state=joint)

    def step_without_reset(
        self, key: Key[Array, "*worlds"], state: MpeState, action: Num[Array, "E N *entries"]
    ) -> tuple[MpeState, TimeStep]:
        """`step`, in which a world whose episode ends is left as it is."""
        world = self._act(state.world, self.spec.clip(action))
        if isinstance(self.scenario, Eventful):
            keys = _derived(keys_per_world(key, action.shape[0]), 0)
            world = self.scenario.happen(world, self.scenario.draw(keys))
        timestep = self._time_step(world, self.scenario.reward(world).T)
        after = MpeState(world, state.step + 1)
        return after, timestep._replace(**self._ends(after, timestep.reward.shape))

    def _ends(self, after: MpeState, shape: tuple[int, ...]) -> dict[str, Bool[Array, "..."]]:
        """As in mpe2, success in the last step of the time limit does not count."""
        cut = after.step >= self.episode_length
        truncated = jnp.broadcast_to(cut, shape[:1])
        if not (isinstance(self.scenario, EarlyEnd) and self.scenario.terminate_on_success):
            return {"truncated": truncated}
        done = self.scenario.success(after.world) & ~truncated
        return {"truncated": truncated, "terminated": jnp.broadcast_to(done[:, None], shape)}

    def _start(self, keys: Key[Array, " E"]) -> MpeState:
        steps = () if self.in_step else keys.shape
        return MpeState(self.scenario.start(keys), jnp.zeros(steps, jnp.int32))

    def _act(self, world: World, action: Num[Array, "E N *entries"]) -> World:
        assert self.actions is not None
        entities, mpe2 = self.scenario.entities, self.dialect == "mpe2"
        control, message = act.decode(entities, self.actions, action, direction=1 if mpe2 else -1)
        moved = move(entities, world, control, position_first=mpe2)
        return moved.replace(message=message)

    def _observe(self, world: World) -> list[Float[Array, "_ _ E"]]:
        """The scenario's blocks, with agent ids if the option is set."""
        blocks = self.scenario.observe(world)
        if not self.agent_ids:
            return blocks
        n, num_envs = world.pos.shape[0], world.pos.shape[-1]
        ids = jnp.broadcast_to(jnp.eye(n)[:, :, None], (n, n, num_envs))
        stops = np.cumsum([block.shape[0] for block in blocks])[:-1]
        ids_of_blocks = jnp.split(ids, stops)
        return [jnp.concatenate(pair, axis=1) for pair in zip(blocks, ids_of_blocks, strict=True)]

    def _observations(self, world: World) -> tuple[Float[Array, "E N O"], Float[Array, "E S"]]:
        """Padded observations, and the global state: as mpe2 defines it, all agents' observations
        concatenated."""
        blocks = self._observe(world)
        wide = self.spec.obs_size
        padded = [jnp.pad(b, ((0, 0), (0, wide - b.shape[1]), (0, 0))) for b in blocks]
        joint = jnp.concatenate([b.reshape(-1, b.shape[-1]) for b in blocks])
        return jnp.moveaxis(jnp.concatenate(padded), -1, 0), joint.T

    def _time_step(self, world: World, reward: Float[Array, "E N"]) -> TimeStep:
        """The time step of a running episode."""
        obs, joint = self._observations(world)
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
            truncated=jnp.zeros(num_envs, bool),
            final_obs=obs,
            final_state=joint,
            final_action_mask=mask,
            info=self._info(world),
        )

    def _info(self, world: World) -> dict[str, Float[Array, " E"]] | None:
        if self.benchmark_data and isinstance(self.scenario, Measured):
            return self.scenario.info(world)
        return None


def _derived(keys: Key[Array, " E"], number: int) -> Key[Array, " E"]:
    return jax.vmap(jax.random.fold_in, (0, None))(keys, number)


def check_dialect(scenario: type[Scenario], dialect: str) -> None:
    """Refuse a dialect that the scenario lacks; only those with a `dialect` field have several."""
    check_choice("dialect", dialect, Mpe.DIALECTS)
    if dialect != "mpe2" and "dialect" not in scenario.__dataclass_fields__:
        raise ConfigError(
            f"dialect={dialect!r} is not defined for {scenario.name}; only dialect='mpe2' is."
        )
