"""JaxMARL worlds with one observation array per agent, as `jaxmarl/<registered name>`.

JaxMARL has a single `done`. The adapter splits it: a world that ran out of time is truncated, one
that was decided is terminated. JaxMARL's `step` resets immediately and loses the last observation,
so the adapter calls `step_env`, which does not reset.
"""

import importlib
import io
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, Num, PyTree, Shaped

from jmarl.envs.adapters import storm
from jmarl.envs.adapters.jaxmarl_options import (
    SHAPING,
    check_actions,
    check_options,
    jaxmarl_options,
    shaping,
)
from jmarl.envs.adapters.jaxmarl_worlds import BRAX_WORLDS, LEARNED_ENEMY, refusal
from jmarl.envs.base import EnvSpec, Team
from jmarl.envs.batched import Batched, StepResult, View, padded_view
from jmarl.envs.spaces import Box, Discrete, MultiDiscrete, Space
from jmarl.errors import ConfigError, unknown
from jmarl.types import float_dtype

WORLD_STATE = "world_state"  # the key of SMAX's global state among its observations
AGAINST_THE_WORLD = ("HeuristicEnemySMAX", LEARNED_ENEMY)  # one team; it can win
EACH_FOR_ITSELF = ("coin_game", *storm.WORLDS)
TELL = 2  # switch_riddle's action that ends the game

# Other libraries' objects, whose types jmarl cannot name: a JaxMARL environment and its state.
Foreign = Any
# (environment, state before, joint action, state after) → whether the outcome was decided, as
# opposed to out of time. Only its value at the end of an episode counts.
Flag = Bool[Array, ""]
Decided = Callable[[Foreign, Foreign, Array, Foreign], Flag]


def _never(env: Foreign, before: Foreign, action: Array, after: Foreign) -> Flag:
    del env, before, action, after
    return jnp.zeros((), bool)


def _riddle_solved(env: Foreign, before: Foreign, action: Array, after: Foreign) -> Flag:
    del env, after
    in_room = jnp.arange(action.shape[0]) == before.agent_in_room
    return (in_room & (action == TELL)).any()


def _battle_over(env: Foreign, before: Foreign, action: Array, after: Foreign) -> Flag:
    del before, action
    allies, enemies = _sides_alive(env, after)
    return ~allies | ~enemies


def _sides_alive(env: Foreign, state: Foreign) -> tuple[Flag, Flag]:
    """Whether any ally and any enemy is alive in SMAX."""
    alive = getattr(state, "state", state).unit_alive  # EnemySMAX wraps the state of SMAX
    return alive[: env.num_allies].any(), alive[env.num_allies :].any()


def _steps_remain(env: Foreign, before: Foreign, action: Array, after: Foreign) -> Flag:
    del before, action
    return jnp.asarray(after.step < env.max_steps)


def _fallen(env: Foreign, before: Foreign, action: Array, after: Foreign) -> Flag:
    del env, before, action
    return after.info["truncation"] == 0


def _always(env: Foreign, before: Foreign, action: Array, after: Foreign) -> Flag:
    del env, before, action, after
    return jnp.ones((), bool)


@dataclass(frozen=True)
class JaxMarlWorld:
    """One JaxMARL world."""

    name: str
    env: Foreign
    decided: Decided
    shaping: float = 0.0  # weight of the world's shaped rewards
    spec: EnvSpec = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", self._make_spec())

    def _make_spec(self) -> EnvSpec:
        obs, _ = jax.eval_shape(self.env.reset, jax.random.key(0))
        shapes = {obs[agent].shape for agent in self.env.agents}
        image = shapes.pop() if len(shapes) == 1 else ()
        agents = tuple(self.env.agents)
        sizes = tuple(obs[agent].size for agent in agents)
        state_size = obs[WORLD_STATE].size if WORLD_STATE in obs else sum(sizes)
        return EnvSpec(
            name=f"jaxmarl/{self.name}",
            agents=agents,
            teams=_teams(self.name, agents),
            obs_sizes=sizes,
            action_spaces=tuple(_space(self.env.action_space(agent)) for agent in agents),
            state_size=state_size,
            episode_length=self._episode_length(),
            dialect="jaxmarl",
            varying_action_mask=self._legal is not None,
            winnable=self.name in AGAINST_THE_WORLD,
            obs_shape=image if len(image) == 3 else None,
        )

    def reset(self, key: Key[Array, ""]) -> tuple[PyTree, View]:
        obs, state = self.env.reset(key)
        return state, self._view(obs, state, None)

    def step(
        self, key: Key[Array, ""], state: PyTree, action: Num[Array, " N *entries"]
    ) -> tuple[PyTree, StepResult]:
        agents = self.spec.agents
        actions = {agent: self._unpadded(i, action[i]) for i, agent in enumerate(agents)}
        obs, after, rewards, dones, info = self.env.step_env(key, state, actions)
        out = jnp.stack([jnp.asarray(dones[agent]).reshape(()) for agent in agents])
        over = jnp.asarray(dones["__all__"]).reshape(())
        decided = self.decided(self.env, state, action, after)
        reward = _of_all(agents, rewards)
        if self.shaping:
            reward = reward + self.shaping * _of_all(agents, info["shaped_reward"])
        return after, StepResult(
            view=self._view(obs, after, ~out | over),
            reward=reward,
            terminated=jnp.where(over, decided, out),
            truncated=over & ~decided,
            won=over & ~_sides_alive(self.env, after)[1] if self.spec.winnable else None,
        )

    def _unpadded(self, i: int, action: Num[Array, "*padded"]) -> Num[Array, "*entries"]:
        """The entries of agent i's action that its space has."""
        space = self.spec.action_spaces[i]
        return action[: space.size] if isinstance(space, Box) else action

    def _view(
        self,
        obs: Mapping[str, Shaped[Array, "..."]],
        state: PyTree,
        active: Bool[Array, " N"] | None,
    ) -> View:
        dtype = float_dtype()
        vectors = {name: jnp.ravel(x).astype(dtype) for name, x in obs.items()}
        of_agents = [vectors[agent] for agent in self.spec.agents]
        mask = self._mask(state)
        return padded_view(self.spec, of_agents, vectors.get(WORLD_STATE), mask, active)

    def _mask(self, state: PyTree) -> Bool[Array, "N A"] | None:
        if self._legal is None:
            return None
        legal, size = self._legal(state), self.spec.action_space.size
        rows = [jnp.ravel(legal[agent]).astype(bool) for agent in self.spec.agents]
        return jnp.stack([jnp.pad(row, (0, size - row.shape[0])) for row in rows])

    @cached_property
    def _legal(self) -> Callable[[PyTree], Mapping[str, Array]] | None:
        """The world's function of legal actions, if it has one with a flag per discrete choice."""
        from jaxmarl.environments.multi_agent_env import MultiAgentEnv

        if hasattr(self.env, "get_legal_moves"):  # hanabi
            return self.env.get_legal_moves
        everything = MultiAgentEnv.get_avail_actions
        defined = getattr(type(self.env), "get_avail_actions", everything) is not everything
        discrete = isinstance(_space(self.env.action_space(self.env.agents[0])), Discrete)
        return self.env.get_avail_actions if defined and discrete else None

    def _episode_length(self) -> int | None:
        if self.name.startswith("MPE_"):
            return self.env.max_steps + 1  # JaxMARL compares before it increments: 26 for 25
        if self.name == "coin_game":
            return self.env.num_inner_steps * self.env.num_outer_steps
        if self.name == "hanabi":
            return _longest_hanabi(self.env)
        return getattr(self.env, "max_steps", getattr(self.env, "episode_length", None))


def _of_all(agents: tuple[str, ...], rewards: Mapping[str, Array]) -> Num[Array, " N"]:
    each = [jnp.asarray(rewards[agent]).reshape(()) for agent in agents]
    return jnp.stack(each).astype(float_dtype())


def _longest_hanabi(env: Foreign) -> int:
    """Turns of the longest legal game, which ends one round after the last card is drawn. A turn
    either draws a card and returns at most one hint token, or spends one: with K initial tokens
    and D cards to draw, at most K + D - 1 hints precede the last draw."""
    drawn = int(env.deck_size) - env.num_agents * env.hand_size
    if drawn <= 0:  # the first turn already belongs to the last round
        return env.num_agents + 1
    return env.max_info_tokens + (drawn - 1) + drawn + env.num_agents


def _decided(name: str, env: Foreign) -> Decided:
    if name.startswith(("MPE_", "overcooked", "coin_game", "storm")):
        return _never  # only the time limit ends them
    if name == "switch_riddle":
        return _riddle_solved
    if "SMAX" in name:
        return _battle_over
    if name in BRAX_WORLDS:
        return _fallen
    return _steps_remain if hasattr(env, "max_steps") else _always


def _teams(name: str, agents: tuple[str, ...]) -> tuple[Team, ...]:
    """Teams by JaxMARL's agent names; in matrix games every agent is its own team."""
    if name in EACH_FOR_ITSELF:
        return tuple(Team(agent, (i,)) for i, agent in enumerate(agents))
    sides = {"adversary": "adversary", "leadadversary": "adversary", "eve": "adversary"}
    sides |= {"ally": "ally", "enemy": "enemy"}
    named = [sides.get(agent.rpartition("_")[0], "good") for agent in agents]
    if set(named) == {"good"}:
        named = ["agents"] * len(agents)
    return tuple(
        Team(side, tuple(i for i, mine in enumerate(named) if mine == side))
        for side in dict.fromkeys(named)
    )


def _space(space: Foreign) -> Space:
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "MultiDiscrete":
        return MultiDiscrete(tuple(int(n) for n in space.num_categories))
    if kind == "Box" and len(space.shape) == 1:
        size = space.shape[0]
        low = jnp.broadcast_to(jnp.asarray(space.low), (size,)).tolist()
        high = jnp.broadcast_to(jnp.asarray(space.high), (size,)).tolist()
        return Box(tuple(low), tuple(high))
    raise ConfigError(f"action space {kind}{getattr(space, 'shape', '')} is not supported.")


def make(name: str, world: str, options: Mapping[str, Any]) -> Batched:
    """Options: those of the JaxMARL world; also `map_name="3m"` for SMAX, the name of a layout and
    `shaping` for overcooked, and `actions` for particle worlds."""
    jaxmarl = import_jaxmarl()
    registered_envs = jaxmarl.registered_envs
    if world not in registered_envs:
        raise unknown("environment", name, [f"jaxmarl/{known}" for known in registered_envs])
    if reason := refusal(name, world, options):
        raise ConfigError(reason)
    if world in BRAX_WORLDS:
        options = {"auto_reset": False, **options}
    given = jaxmarl_options(world, options)
    weight = shaping(world, given.pop(SHAPING, 0.0))
    try:
        env = jaxmarl.make(world, **given)
    except TypeError as error:
        raise ConfigError(f"{name}: {error}.") from None
    except (ValueError, AssertionError, ImportError) as error:
        raise ConfigError(f"{name} cannot be built: {error}") from None
    check_options(name, env, given)
    env = storm.Storm(env) if world in storm.WORLDS else env
    obs = jax.eval_shape(env.reset, jax.random.key(0))[0]
    if not isinstance(obs, dict) or not set(env.agents) <= set(obs):
        seen = ", ".join(map(repr, obs)) if isinstance(obs, dict) else type(obs).__name__
        raise ConfigError(
            f"{name} is not supported: its observations are {seen}, not one array per agent."
        )
    made = JaxMarlWorld(world, env, _decided(world, env), weight)
    check_actions(made.spec, options.get("actions"))
    return Batched(made)


def import_jaxmarl() -> ModuleType:
    """Import jaxmarl without its output: it prints a banner and replaces sys.stdout and
    sys.stderr."""
    streams = sys.stdout, sys.stderr, sys.__stdout__
    sys.stdout = sys.__stdout__ = io.StringIO()  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return importlib.import_module("jaxmarl")
    finally:
        sys.stdout, sys.stderr, sys.__stdout__ = streams  # pyright: ignore
