"""Any JaxMARL world with vector (or flattenable) observations, as `jaxmarl/<registered name>`.

JaxMARL has one `done`. Here it is split: a world that ran out of time is truncated, one that was
decided is terminated. Its own `step` resets at once and loses the last observation, so the
adapter uses `step_env`, which does not.
"""

import importlib
import io
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from jmarl.envs.base import EnvSpec, Team
from jmarl.envs.batched import Batched, Outcome, View, padded_view
from jmarl.envs.spaces import Box, Discrete, MultiDiscrete, Space
from jmarl.errors import ConfigError, unknown
from jmarl.types import float_dtype

WORLD_STATE = "world_state"  # the key under which SMAX hands out its global state
BRAX_WORLDS = ("ant_4x2", "halfcheetah_6x1", "hopper_3x1", "humanoid_9|8", "walker2d_2x3")
AGAINST_THE_WORLD = ("HeuristicEnemySMAX", "LearnedPolicyEnemySMAX")  # one team, can win
TELL = 2  # switch_riddle's action that ends the game

# (environment, state before, joint action, state after) → [] bool: the outcome was decided,
# not merely out of time. Asked only when the episode is over.
Decided = Callable[[Any, Any, jax.Array, Any], jax.Array]


def _never(env: Any, before: Any, action: jax.Array, after: Any) -> jax.Array:
    del env, before, action, after
    return jnp.zeros((), bool)


def _riddle_told(env: Any, before: Any, action: jax.Array, after: Any) -> jax.Array:
    del env, after
    in_room = jnp.arange(action.shape[0]) == before.agent_in_room
    return (in_room & (action == TELL)).any()


def _battle_over(env: Any, before: Any, action: jax.Array, after: Any) -> jax.Array:
    del before, action
    allies, enemies = _sides_alive(env, after)
    return ~allies | ~enemies


def _sides_alive(env: Any, state: Any) -> tuple[jax.Array, jax.Array]:
    """Whether any ally and any enemy lives in SMAX."""
    alive = getattr(state, "state", state).unit_alive  # EnemySMAX wraps SMAX's own state
    return alive[: env.num_allies].any(), alive[env.num_allies :].any()


def _not_out_of_steps(env: Any, before: Any, action: jax.Array, after: Any) -> jax.Array:
    del before, action
    return jnp.asarray(after.step < env.max_steps)


def _fallen(env: Any, before: Any, action: jax.Array, after: Any) -> jax.Array:
    del env, before, action
    return after.info["truncation"] == 0


def _always(env: Any, before: Any, action: jax.Array, after: Any) -> jax.Array:
    del env, before, action, after
    return jnp.ones((), bool)


@dataclass(frozen=True)
class JaxMarlWorld:
    """One JaxMARL world."""

    name: str
    env: Any
    decided: Decided
    spec: EnvSpec = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", self._describe())

    def _describe(self) -> EnvSpec:
        obs, _ = jax.eval_shape(self.env.reset, jax.random.key(0))
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
        )

    def reset(self, key: jax.Array) -> tuple[Any, View]:
        obs, state = self.env.reset(key)
        return state, self._view(obs, state, None)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, Outcome]:
        agents = self.spec.agents
        own = {a: self._own_action(i, action[i]) for i, a in enumerate(agents)}
        obs, after, rewards, dones, _ = self.env.step_env(key, state, own)
        out = jnp.stack([jnp.asarray(dones[agent]).reshape(()) for agent in agents])
        over = jnp.asarray(dones["__all__"]).reshape(())
        decided = self.decided(self.env, state, action, after)
        reward = jnp.stack([jnp.asarray(rewards[agent]).reshape(()) for agent in agents])
        return after, Outcome(
            view=self._view(obs, after, ~out | over),
            reward=reward.astype(float_dtype()),
            terminated=jnp.where(over, decided, out),
            truncated=over & ~decided,
            won=over & ~_sides_alive(self.env, after)[1] if self.spec.winnable else None,
        )

    def _own_action(self, i: int, action: jax.Array) -> jax.Array:
        """Without the padding."""
        space = self.spec.action_spaces[i]
        return action[: space.size] if isinstance(space, Box) else action

    def _view(self, obs: Mapping[str, jax.Array], state: Any, active: jax.Array | None) -> View:
        dtype = float_dtype()
        flat = {name: jnp.ravel(x).astype(dtype) for name, x in obs.items()}
        own = [flat[agent] for agent in self.spec.agents]
        return padded_view(self.spec, own, flat.get(WORLD_STATE), self._mask(state), active)

    def _mask(self, state: Any) -> jax.Array | None:
        if self._legal is None:
            return None
        legal, wide = self._legal(state), self.spec.action_space.size
        rows = [jnp.ravel(legal[agent]).astype(bool) for agent in self.spec.agents]
        return jnp.stack([jnp.pad(row, (0, wide - row.shape[0])) for row in rows])

    @cached_property
    def _legal(self) -> Callable[[Any], Mapping[str, jax.Array]] | None:
        """The world's own account of legal actions, if it gives one per discrete choice."""
        from jaxmarl.environments.multi_agent_env import MultiAgentEnv

        if hasattr(self.env, "get_legal_moves"):  # hanabi
            return self.env.get_legal_moves
        given = type(self.env).get_avail_actions is not MultiAgentEnv.get_avail_actions
        discrete = isinstance(_space(self.env.action_space(self.env.agents[0])), Discrete)
        return self.env.get_avail_actions if given and discrete else None

    def _episode_length(self) -> int | None:
        if self.name.startswith("MPE_"):
            return self.env.max_steps + 1  # JaxMARL compares before it counts: 26 for 25
        if self.name == "coin_game":
            return self.env.num_inner_steps * self.env.num_outer_steps
        if self.name == "hanabi":
            return _longest_hanabi(self.env)
        return getattr(self.env, "max_steps", getattr(self.env, "episode_length", None))


def _longest_hanabi(env: Any) -> int:
    """Turns of the longest legal game, which ends one round after the last card is drawn. A turn
    either draws a card and returns at most one hint token, or spends one: with K tokens at first
    and D cards to draw, at most K + D - 1 hints come before the last draw."""
    drawn = int(env.deck_size) - env.num_agents * env.hand_size
    if drawn <= 0:  # the first turn already belongs to the last round
        return env.num_agents + 1
    return env.max_info_tokens + (drawn - 1) + drawn + env.num_agents


def _decided(name: str, env: Any) -> Decided:
    if name.startswith(("MPE_", "overcooked", "coin_game")):
        return _never  # they end by the clock alone
    if name == "switch_riddle":
        return _riddle_told
    if "SMAX" in name:
        return _battle_over
    if name in BRAX_WORLDS:
        return _fallen
    return _not_out_of_steps if hasattr(env, "max_steps") else _always


def _teams(name: str, agents: tuple[str, ...]) -> tuple[Team, ...]:
    """Sides of a contest by JaxMARL's agent names; in coin_game everyone plays for himself."""
    if name == "coin_game":
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


def _space(space: Any) -> Space:
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
    """Options are those of the JaxMARL world; also `map_name="3m"` for SMAX and a layout's name
    for overcooked."""
    jaxmarl = import_jaxmarl()
    registered_envs = jaxmarl.registered_envs
    if world not in registered_envs:
        raise unknown("environment", name, [f"jaxmarl/{known}" for known in registered_envs])
    if world in BRAX_WORLDS:
        from jmarl.envs.adapters.brax import require

        require("brax", name)
        options = {"auto_reset": False, **options}
    options = _named_options(world, options)
    try:
        env = jaxmarl.make(world, **options)
    except TypeError as error:
        raise ConfigError(f"{name}: {error}.") from None
    except (ValueError, AssertionError, ImportError) as error:
        raise ConfigError(f"{name} cannot be built: {error}") from None
    obs = jax.eval_shape(env.reset, jax.random.key(0))[0]
    if not isinstance(obs, dict) or not set(env.agents) <= set(obs):
        given = ", ".join(map(repr, obs)) if isinstance(obs, dict) else type(obs).__name__
        raise ConfigError(
            f"{name} is not supported: its observations are {given}, not one array per agent."
        )
    return Batched(JaxMarlWorld(world, env, _decided(world, env)))


def import_jaxmarl() -> Any:
    """The package, quietly: it announces itself and leaves sys.stdout and sys.stderr replaced."""
    streams = sys.stdout, sys.stderr, sys.__stdout__
    sys.stdout = sys.__stdout__ = io.StringIO()  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return importlib.import_module("jaxmarl")
    finally:
        sys.stdout, sys.stderr, sys.__stdout__ = streams  # pyright: ignore


def _named_options(world: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Names of maps and layouts become what JaxMARL takes in their place."""
    options = dict(options)
    if "SMAX" in world and "map_name" in options:
        from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO

        map_name = options.pop("map_name")
        if map_name not in MAP_NAME_TO_SCENARIO:
            raise unknown("SMAX map", str(map_name), MAP_NAME_TO_SCENARIO)
        options["scenario"] = MAP_NAME_TO_SCENARIO[map_name]
    if world == "overcooked" and isinstance(options.get("layout"), str):
        from jaxmarl.environments.overcooked.layouts import overcooked_layouts

        if options["layout"] not in overcooked_layouts:
            raise unknown("overcooked layout", options["layout"], overcooked_layouts)
        options["layout"] = overcooked_layouts[options["layout"]]
    return options
