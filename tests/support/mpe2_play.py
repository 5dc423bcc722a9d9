"""Episodes played by Farama's mpe2 itself, recorded so that the native worlds can replay them."""

import importlib
import logging
from typing import NamedTuple

import numpy as np

from jmarl.evaluation.mpe2 import VERSIONS

# our option → mpe2's
OPTIONS = {"num_agents": "N", "episode_length": "max_cycles"}


class Play(NamedTuple):
    """Axes: E episodes, T steps, N agents. Everything in mpe2's own double precision."""

    agents: list[str]
    worlds: dict[str, np.ndarray]  # before each step: `World` fields, [T, …, E]
    first_obs: list[np.ndarray]  # per agent [E, O]
    actions: np.ndarray  # [T, E, N, …]
    obs: list[np.ndarray]  # per agent [T, E, O], unrounded
    delivered: list[np.ndarray]  # per agent [T, E, O], as the API hands it out (float32)
    state: np.ndarray  # [T, E, S]
    reward: np.ndarray  # [T, E, N]
    terminated: np.ndarray  # [T, E, N]
    truncated: np.ndarray  # [T, E, N]
    contacts: int  # pairs of solid bodies that overlapped, over all steps


def make(scenario: str, actions: str, options: dict):
    """mpe2's parallel environment for our names of the options."""
    options = dict(options)
    landmarks = options.pop("num_landmarks", None)
    if scenario == "simple_adversary" and "num_good" in options:
        options["N"] = options.pop("num_good")
    options = {OPTIONS.get(name, name): value for name, value in options.items()}
    module = importlib.import_module(f"mpe2.{VERSIONS[scenario]}")
    env = module.parallel_env(continuous_actions=actions == "continuous", **options)
    if landmarks is not None:  # mpe2 ties them to N, but its world takes any number
        world = env.unwrapped.world
        world.landmarks = (world.landmarks * landmarks)[:landmarks]
        world.landmarks = [type(mark)() for mark in world.landmarks]
        for mark in world.landmarks:
            mark.collide, mark.movable, mark.size = False, False, 0.05
    return env


def goals(scenario: str, world) -> np.ndarray:
    """[G]: the goal indices that the native world calls `goal`."""
    index = {id(mark): k for k, mark in enumerate(world.landmarks)}
    if scenario == "simple_reference":
        return np.array([index[id(agent.goal_b)] for agent in world.agents])
    if scenario == "simple_speaker_listener":
        return np.array([index[id(world.agents[0].goal_b)]])
    if scenario in ("simple_adversary", "simple_push"):
        return np.array([index[id(world.agents[0].goal_a)]])
    if scenario == "simple_crypto":
        return np.array([index[id(world.agents[0].goal_a)], int(world.agents[2].key.argmax())])
    return np.zeros(0, int)


def snapshot(scenario: str, world) -> dict[str, np.ndarray]:
    """The fields of a native `World` for one mpe2 world."""
    speakers = [agent for agent in world.agents if not agent.silent]
    return {
        "pos": np.array([agent.state.p_pos for agent in world.agents]),
        "vel": np.array([agent.state.p_vel for agent in world.agents]),
        "landmarks": np.array([mark.state.p_pos for mark in world.landmarks]).reshape(-1, 2),
        "message": np.array([agent.state.c for agent in speakers]).reshape(
            len(speakers), world.dim_c if speakers else 0
        ),
        "goal": goals(scenario, world),
    }


def contacts(world) -> int:
    """Overlapping pairs of solid bodies, counted as mpe2 would push them apart."""
    solid = [entity for entity in world.entities if entity.collide]
    count = 0
    for i, a in enumerate(solid):
        for b in solid[i + 1 :]:
            near = np.linalg.norm(a.state.p_pos - b.state.p_pos) < a.size + b.size
            count += bool(near and (a.movable or b.movable))
    return count


def pad_action(action: np.ndarray, width: int) -> np.ndarray:
    return np.pad(action, (0, width - action.size)) if width else action


def play(
    scenario: str,
    actions: str,
    options: dict,
    episodes: int,
    seed: int,
    crowd=1.0,
    dtype=np.float32,
):
    """Random play, recorded. Odd episodes start with all places times `crowd`, so that bodies meet.

    `dtype` of continuous actions: mpe2 subtracts them in the precision in which they come.
    """
    logging.getLogger("pettingzoo.utils.env_logger").setLevel(logging.ERROR)  # it warns per clip
    env = make(scenario, actions, options)
    world = env.unwrapped.world
    rng = np.random.default_rng(seed)
    width = (
        max(env.action_space(a).shape[0] for a in env.possible_agents)
        if actions == "continuous"
        else 0
    )
    record: list[dict] = []
    firsts, met = [], 0
    for episode in range(episodes):
        env.reset(seed=seed + episode)
        if episode % 2:
            for entity in world.entities:
                entity.state.p_pos = crowd * entity.state.p_pos
        observe = env.unwrapped.scenario.observation
        firsts.append([observe(agent, world) for agent in world.agents])
        steps = []
        while env.agents:
            if actions == "continuous":  # beyond [0, 1] too, which mpe2 clips
                chosen = {
                    a: rng.uniform(-0.3, 1.3, env.action_space(a).shape).astype(dtype)
                    for a in env.possible_agents
                }
                action = np.stack([pad_action(x, width) for x in chosen.values()])
            else:
                chosen = {a: int(rng.integers(env.action_space(a).n)) for a in env.possible_agents}
                action = np.array(list(chosen.values()))
            before = snapshot(scenario, world)
            obs, reward, terminated, truncated, _ = env.step(chosen)
            met += contacts(world)
            steps.append(
                {
                    "before": before,
                    "action": action,
                    "obs": [observe(agent, world) for agent in world.agents],
                    "delivered": [obs[a] for a in env.possible_agents],
                    "state": np.concatenate([observe(agent, world) for agent in world.agents]),
                    "reward": [reward[a] for a in env.possible_agents],
                    "terminated": [terminated[a] for a in env.possible_agents],
                    "truncated": [truncated[a] for a in env.possible_agents],
                }
            )
        record.append(steps)

    def stacked(name: str) -> np.ndarray:
        return np.array([[step[name] for step in steps] for steps in zip(*record, strict=True)])

    def per_agent(name: str) -> list[np.ndarray]:
        return [
            np.array([[step[name][i] for step in steps] for steps in zip(*record, strict=True)])
            for i in range(len(world.agents))
        ]

    def over_time(name: str) -> np.ndarray:
        return np.stack(
            [
                np.stack([s["before"][name] for s in steps], -1)
                for steps in zip(*record, strict=True)
            ]
        )

    return Play(
        agents=list(env.possible_agents),
        worlds={name: over_time(name) for name in ("pos", "vel", "landmarks", "message", "goal")},
        first_obs=[np.stack([first[i] for first in firsts]) for i in range(len(world.agents))],
        actions=stacked("action"),
        obs=per_agent("obs"),
        delivered=per_agent("delivered"),
        state=stacked("state"),
        reward=stacked("reward"),
        terminated=stacked("terminated"),
        truncated=stacked("truncated"),
        contacts=met,
    )
