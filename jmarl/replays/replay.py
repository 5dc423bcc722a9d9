"""Records episodes of a policy in particle worlds, step by step, for drawing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jmarl.envs.base import Team
from jmarl.envs.mpe.actions import decode
from jmarl.envs.mpe.collect_treasure import NONE, Treasures
from jmarl.envs.mpe.env import Mpe, Scenario
from jmarl.envs.mpe.world import Entities, World, where_worlds
from jmarl.errors import ConfigError
from jmarl.evaluation.trained_policy import TrainedPolicy
from jmarl.execution.compiler import quick_options
from jmarl.learning.acting import Play, begin_episodes, play_step
from jmarl.policies.base import Player
from jmarl.replays.attention import RecordedDecision, TeamAttention, attention_of, make_attention
from jmarl.replays.legend import ScenarioLegend, legend_of
from jmarl.types import PolicyState

MIN_REACH = 1.15  # entities start within ±1
SILENCE = 1e-6  # a message with no larger component counts as none


class PlayedSteps(NamedTuple):
    """T steps of all worlds; worlds are the last axis of `first` and `after`."""

    first: World
    after: World  # [T, …]
    action: jax.Array  # [T, E, N, …]
    reward: jax.Array  # [T, E, N]
    move: jax.Array  # [T, E, N, 2]
    running: jax.Array  # [T, E] whether the episode had not ended before the step
    decisions: tuple[RecordedDecision, ...]  # of each group; empty unless attention is recorded


class Cargo(NamedTuple):
    """Landmarks that come and go. They and what agents carry have the colour of an agent; -1: the
    landmark is not there, the agent carries nothing."""

    place: np.ndarray  # [E, T+1, L, 2]
    owner: np.ndarray  # [E, T+1, L] the agent whose colour a landmark has
    carried: np.ndarray  # [E, T+1, N] the agent whose colour has what an agent carries
    delivered: np.ndarray  # [E, T+1] in the step that led to a state


@dataclass(frozen=True)
class Replay:
    """E episodes of T steps, hence T + 1 states. Step t leads from state t to state t + 1, earns
    `reward[:, t]` and sends `message[:, t + 1]`. An episode that ends early stands still then."""

    env: str
    algorithm: str
    scenario: str
    entities: Entities  # agents and landmarks with their properties
    teams: tuple[Team, ...]
    legend: ScenarioLegend  # roles, colours, aims
    pos: np.ndarray  # [E, T+1, N, 2]
    vel: np.ndarray  # [E, T+1, N, 2]
    landmarks: np.ndarray  # [E, L, 2]; they do not move
    message: np.ndarray  # [E, T+1, speakers, C]
    goal: np.ndarray  # [E, G]
    action: np.ndarray  # [E, T, N, …] as the policy returned it
    move: np.ndarray  # [E, T, N, 2] the direction in which it pushes the agent, in [-1, 1]²
    reward: np.ndarray  # [E, T, N]
    attention: tuple[TeamAttention, ...] = ()  # one per transformer
    cargo: Cargo | None = None  # None: landmarks stay where and what they are
    length: np.ndarray | None = None  # [E] steps until an episode ended; None: all T

    @property
    def episodes(self) -> int:
        return self.pos.shape[0]

    @property
    def steps(self) -> int:
        return self.reward.shape[1]

    @property
    def team_names(self) -> list[str]:
        """The roles in each team, which say more than the team's name."""
        return [
            " + ".join(role.name for role in self.legend.roles if role.agents[0] in team.agents)
            for team in self.teams
        ]

    @property
    def team_reward(self) -> np.ndarray:
        """[E, T+1, teams]: cumulative reward up to each state, summed over the team."""
        sums = [self.reward[:, :, list(team.agents)].sum(2) for team in self.teams]
        so_far = np.stack(sums, 2).cumsum(1)
        return np.concatenate([np.zeros_like(so_far[:, :1]), so_far], axis=1)

    def reach(self, episode: int) -> float:
        """Half the side of the square that contains all discs in every state."""
        agents = np.abs(self.pos[episode]) + self.entities.radius[:, None]
        sizes = np.array([landmark.radius for landmark in self.entities.landmarks])
        landmarks = np.abs(self.landmarks[episode]) + sizes[:, None]
        return float(max(MIN_REACH, agents.max(), landmarks.max(initial=0.0)))

    def places(self, episode: int, state: int) -> np.ndarray:
        """[L, 2]: of landmarks."""
        if self.cargo is None:
            return self.landmarks[episode]
        return self.cargo.place[episode, state]

    def landmark_colour(self, episode: int, state: int, i: int) -> str | None:
        """None: the landmark is not there."""
        if self.cargo is None:
            return self.legend.thing(self.entities.landmarks[i].kind).colour
        return self._colour_of(self.cargo.owner[episode, state, i])

    def carried_colour(self, episode: int, state: int, agent: int) -> str | None:
        """Of what an agent carries. None: nothing."""
        if self.cargo is None:
            return None
        return self._colour_of(self.cargo.carried[episode, state, agent])

    def _colour_of(self, agent: int) -> str | None:
        return None if agent < 0 else self.legend.role_of(int(agent)).colour

    def word(self, episode: int, state: int, speaker: int) -> int | list[float] | None:
        """The speaker's last message: the number of a word, several strengths, or None."""
        message = self.message[episode, state, speaker]
        if np.abs(message).max() < SILENCE:
            return None
        if message.max() == 1 and message.sum() == 1:
            return int(message.argmax())
        return [round(float(strength), 2) for strength in message]


def record(
    policy: TrainedPolicy,
    key: jax.Array,
    episodes: int,
    greedy: bool = True,
    attention: bool = True,
) -> Replay:
    """Record the episodes that `play_episodes` plays from the same key; with `attention`, also the
    attention weights of transformers."""
    env = policy.env
    if not isinstance(env, Mpe):
        raise ConfigError(f"{policy.spec.name} cannot be drawn; only the native mpe/… worlds can.")

    def play(policies: tuple[PolicyState, ...], key: jax.Array, greedy: jax.Array) -> tuple:
        played = play_steps(env, policy.players, policies, key, episodes, greedy, attention)
        weights = [
            attention_of(player.policy, own.params, decision)
            for player, own, decision in zip(
                policy.players, policies, played.decisions, strict=False
            )
        ]
        orders = [decision.context for decision in played.decisions]
        return played._replace(decisions=()), weights, orders

    compiled = jax.jit(play, compiler_options=quick_options())
    played, weights, orders = jax.device_get(compiled(policy.policies, key, jnp.asarray(greedy)))
    maps = tuple(
        make_attention(player.agents, of_player, order)
        for player, of_player, order in zip(policy.players, weights, orders, strict=False)
        if of_player
    )
    return make_replay(env, played, policy.config.algorithm, maps)


def play_steps(
    env: Mpe,
    players: Sequence[Player],
    policies: Sequence[PolicyState],
    key: jax.Array,
    episodes: int,
    deterministic: bool | jax.Array,
    record_decisions: bool = False,
) -> PlayedSteps:
    """The episodes that `play_episodes` plays from the same key."""
    start, given = begin_episodes(env, players, key, episodes, env.episode_length)

    def step(carry: tuple[Play, World, jax.Array], given: tuple) -> tuple:
        (now, shown, running), (noise, step_key) = carry, given
        # A reset would replace the last state by the first of the next episode.
        advance = partial(env.step_without_reset, step_key)
        now, turn = play_step(env.spec, players, policies, now, noise, advance, deterministic)
        decisions = tuple(
            RecordedDecision(inputs, output.action, output.context)
            for inputs, output in zip(turn.seen, turn.outputs, strict=True)
            if record_decisions
        )
        shown = jax.tree.map(partial(where_worlds, running), now.env.world, shown)
        reward = now.timestep.reward * running[:, None]
        after = now, shown, running & ~now.timestep.over
        return after, (shown, turn.action, reward, running, decisions)

    first, running = start.env.world, jnp.ones(episodes, bool)
    _, played = lax.scan(step, (start, first, running), given)
    after, action, reward, running, decisions = played
    move = moves(env, action) * running[:, :, None, None]
    return PlayedSteps(first, after, action, reward, move, running, decisions)


def make_replay(
    env: Mpe, played: PlayedSteps, algorithm: str, attention: tuple[TeamAttention, ...] = ()
) -> Replay:
    """Reorder the axes: episode first, then time."""
    first, after = played.first, played.after

    def over_time(before: Any, later: Any) -> np.ndarray:
        return np.moveaxis(np.concatenate([np.asarray(before)[None], np.asarray(later)]), -1, 0)

    return Replay(
        env=env.spec.name,
        algorithm=algorithm,
        scenario=env.scenario.name,
        entities=env.scenario.entities,
        teams=env.spec.teams,
        legend=legend_of(env.scenario),
        pos=over_time(first.pos, after.pos),
        vel=over_time(first.vel, after.vel),
        landmarks=np.moveaxis(np.asarray(first.landmarks), -1, 0),
        message=over_time(first.message, after.message),
        goal=np.asarray(first.goal).T,
        action=np.moveaxis(np.asarray(played.action), 1, 0),
        move=np.moveaxis(np.asarray(played.move), 1, 0),
        reward=np.moveaxis(np.asarray(played.reward), 1, 0),
        attention=attention,
        cargo=_cargo(env.scenario, first, after, over_time),
        length=np.asarray(played.running).sum(0),
    )


def _cargo(
    scenario: Scenario, first: World, after: World, over_time: Callable[[Any, Any], np.ndarray]
) -> Cargo | None:
    """Of treasures, which have the colours of their deposits."""
    if not isinstance(first.own, Treasures):
        return None
    owner, held = (
        over_time(getattr(first.own, name), getattr(after.own, name)) for name in ("kind", "held")
    )
    deposits = len(scenario.entities.agents) - held.shape[2]
    carried = np.pad(held, ((0, 0), (0, 0), (0, deposits)), constant_values=NONE)

    def agent(kind: np.ndarray) -> np.ndarray:
        return np.where(kind == NONE, -1, kind + held.shape[2])

    return Cargo(
        place=over_time(first.landmarks, after.landmarks),
        owner=agent(owner),
        carried=agent(carried),
        delivered=over_time(first.own.deliveries, after.own.deliveries),
    )


def moves(env: Mpe, action: jax.Array) -> jax.Array:
    """`[T, E, N, …]` → `[T, E, N, 2]`: the forces that the env decodes from actions, divided by the
    agents' accelerations."""
    assert env.actions is not None
    entities, steps = env.scenario.entities, action.shape[:2]
    sign = 1 if env.dialect == "mpe2" else -1
    rows = env.spec.clip(action.reshape(-1, *action.shape[2:]))
    control, _ = decode(entities, env.actions, rows, direction=sign)
    strength = np.array([agent.accel for agent in entities.agents])
    return jnp.moveaxis(control / strength[:, None, None], -1, 0).reshape(*steps, -1, 2)
