"""Episodes of a policy in particle worlds, step by step: what pictures of it are made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jmarl.envs.base import Team
from jmarl.envs.mpe.actions import decode
from jmarl.envs.mpe.env import Mpe
from jmarl.envs.mpe.world import Cast, World
from jmarl.errors import ConfigError
from jmarl.evaluation.trained_policy import TrainedPolicy
from jmarl.execution.compiler import quick_options
from jmarl.learning.rollout import act_all, noise_of, perceive
from jmarl.learning.running_statistics import Normalisers
from jmarl.policies.base import Group, group_view
from jmarl.replays.attention import Attention, Watched, attention_of
from jmarl.replays.attention import gathered as gathered_attention
from jmarl.replays.legend import Story, story_of

MIN_REACH = 1.15  # worlds begin within ±1
SILENCE = 1e-6  # a speaker all of whose numbers are below has said nothing


class Played(NamedTuple):
    """T steps of all worlds; worlds lie on the last axis of `first` and `after`."""

    first: World
    after: World  # [T, …]
    action: jax.Array  # [T, E, N, …]
    reward: jax.Array  # [T, E, N]
    move: jax.Array  # [T, E, N, 2]
    watched: tuple[Watched, ...]  # of each group, if asked for


@dataclass(frozen=True)
class Replay:
    """E episodes of T steps, so of T + 1 states: `reward[:, t]` was paid for reaching state t + 1,
    and `message[:, t + 1]` was said on the way there."""

    env: str
    algorithm: str
    scenario: str
    cast: Cast  # names, teams, sizes; who moves, who speaks; kinds of landmarks
    teams: tuple[Team, ...]
    story: Story  # roles, colours, aims
    pos: np.ndarray  # [E, T+1, N, 2]
    vel: np.ndarray  # [E, T+1, N, 2]
    landmarks: np.ndarray  # [E, L, 2]; they stay
    message: np.ndarray  # [E, T+1, speakers, C]
    goal: np.ndarray  # [E, G]
    action: np.ndarray  # [E, T, N, …] as the policy chose
    move: np.ndarray  # [E, T, N, 2] where it pushes the agent, each way in [-1, 1]
    reward: np.ndarray  # [E, T, N]
    attention: tuple[Attention, ...] = ()  # of each transformer

    @property
    def episodes(self) -> int:
        return self.pos.shape[0]

    @property
    def steps(self) -> int:
        return self.reward.shape[1]

    @property
    def team_names(self) -> list[str]:
        """By the roles in each, which say more than a team's own name."""
        return [
            " + ".join(role.name for role in self.story.roles if role.agents[0] in team.agents)
            for team in self.teams
        ]

    @property
    def team_reward(self) -> np.ndarray:
        """[E, T+1, teams]: summed over the members, up to each state."""
        sums = [self.reward[:, :, list(team.agents)].sum(2) for team in self.teams]
        so_far = np.stack(sums, 2).cumsum(1)
        return np.concatenate([np.zeros_like(so_far[:, :1]), so_far], axis=1)

    def reach(self, episode: int) -> float:
        """Half the side of the square that holds all discs in every state."""
        agents = np.abs(self.pos[episode]) + self.cast.radius[:, None]
        sizes = np.array([landmark.radius for landmark in self.cast.landmarks])
        landmarks = np.abs(self.landmarks[episode]) + sizes[:, None]
        return float(max(MIN_REACH, agents.max(), landmarks.max(initial=0.0)))

    def word(self, episode: int, state: int, speaker: int) -> int | list[float] | None:
        """What the speaker last said: a word's number, several strengths, or nothing."""
        said = self.message[episode, state, speaker]
        if np.abs(said).max() < SILENCE:
            return None
        if said.max() == 1 and said.sum() == 1:
            return int(said.argmax())
        return [round(float(strength), 2) for strength in said]


def record(
    policy: TrainedPolicy,
    key: jax.Array,
    episodes: int,
    greedy: bool = True,
    attention: bool = True,
) -> Replay:
    """The episodes that `play_episodes` plays from the same key, in full. `attention`: also what
    transformers attend to."""
    env = policy.env
    if not isinstance(env, Mpe):
        raise ConfigError(f"{policy.spec.name} cannot be drawn; only the native mpe/… worlds can.")

    def play(params: Any, norms: Normalisers, key: jax.Array, greedy: jax.Array) -> tuple:
        played = play_steps(env, policy.groups, params, norms, key, episodes, greedy, attention)
        found = [
            attention_of(group.policy, own, watched)
            for group, own, watched in zip(policy.groups, params, played.watched, strict=False)
        ]
        return played._replace(watched=()), found, [w.context for w in played.watched]

    once = jax.jit(play, compiler_options=quick_options())
    played, found, orders = jax.device_get(
        once(policy.params, policy.norms, key, jnp.asarray(greedy))
    )
    maps = tuple(
        gathered_attention(group.agents, weights, order)
        for group, weights, order in zip(policy.groups, found, orders, strict=False)
        if weights
    )
    return gathered(env, played, policy.config.algorithm, maps)


def play_steps(
    env: Mpe,
    groups: Sequence[Group],
    params: Sequence[Any],
    norms: Normalisers,
    key: jax.Array,
    episodes: int,
    deterministic: bool | jax.Array,
    watch: bool = False,
) -> Played:
    reset_key, act_key, _ = jax.random.split(key, 3)  # as in evaluation, which also resets

    def step(carry: tuple, noise: tuple) -> tuple:
        memory, state, timestep = carry
        seen = perceive(env.spec, timestep, norms)
        memory, decisions, action = act_all(
            env.spec, groups, params, memory, noise, seen, deterministic
        )
        watched = tuple(
            Watched(group_view(env.spec, group, seen), made.action, made.context)
            for group, made in zip(groups, decisions, strict=True)
            if watch
        )
        # without a reset: the last state would be the next episode's first
        state, timestep = env.step_on(state, action)
        return (memory, state, timestep), (state.world, action, timestep.reward, watched)

    state, timestep = env.reset(reset_key, episodes)
    memory = tuple(group.policy.memory(episodes) for group in groups)
    noise = noise_of(groups, jax.random.split(act_key, episodes), env.episode_length)
    _, (after, action, reward, watched) = lax.scan(step, (memory, state, timestep), noise)
    return Played(state.world, after, action, reward, moves(env, action), watched)


def gathered(
    env: Mpe, played: Played, algorithm: str, attention: tuple[Attention, ...] = ()
) -> Replay:
    """From arrays as they are computed to arrays as they are looked at: by episode, then time."""
    first, after = played.first, played.after

    def over_time(before: Any, later: Any) -> np.ndarray:
        return np.moveaxis(np.concatenate([np.asarray(before)[None], np.asarray(later)]), -1, 0)

    return Replay(
        env=env.spec.name,
        algorithm=algorithm,
        scenario=env.scenario.name,
        cast=env.scenario.cast,
        teams=env.spec.teams,
        story=story_of(env.scenario),
        pos=over_time(first.pos, after.pos),
        vel=over_time(first.vel, after.vel),
        landmarks=np.moveaxis(np.asarray(first.landmarks), -1, 0),
        message=over_time(first.message, after.message),
        goal=np.asarray(first.goal).T,
        action=np.moveaxis(np.asarray(played.action), 1, 0),
        move=np.moveaxis(np.asarray(played.move), 1, 0),
        reward=np.moveaxis(np.asarray(played.reward), 1, 0),
        attention=attention,
    )


def moves(env: Mpe, action: jax.Array) -> jax.Array:
    """`[T, E, N, …]` → `[T, E, N, 2]`: the world's own reading of actions, without the agents'
    strengths."""
    assert env.actions is not None
    cast, steps = env.scenario.cast, action.shape[:2]
    sign = 1 if env.dialect == "mpe2" else -1
    rows = env.spec.clip(action.reshape(-1, *action.shape[2:]))
    control, _ = decode(cast, env.actions, rows, direction=sign)
    strength = np.array([agent.accel for agent in cast.agents])
    return jnp.moveaxis(control / strength[:, None, None], -1, 0).reshape(*steps, -1, 2)
