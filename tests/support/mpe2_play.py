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
    running: np.ndarray  # [T, E] whether the episode had not ended; afterwards its last step stays
    drawn: np.ndarray  # [T, D, E] random numbers that led mpe2's steps to what they led to
    told: dict[str, np.ndarray]  # [T, E] `numbers` of mpe2's benchmark data; {} without
    contacts: int  # pairs of solid bodies that overlapped, over all steps


def make(scenario: str, actions: str, options: dict):
    """mpe2's parallel environment for our names of the options."""
    options = dict(options)
    landmarks, stage = options.pop("num_landmarks", None), options.pop("curriculum_stage", None)
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
    if stage is not None:
        set_stage(env.unwrapped.scenario, stage)
    return env


def set_stage(scenario, stage: int) -> None:
    """What mpe2's `set_curriculum_stage` means to do: in mpe2 1.1.1 a property of the base class
    swallows the number, so that every curriculum stays at stage 0."""
    kind = type(scenario)
    scenario.__class__ = type(kind.__name__, (kind,), {"curriculum_stage": stage})


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
        "landmarks": np.array([place(mark) for mark in world.landmarks]).reshape(-1, 2),
        "message": np.array([agent.state.c for agent in speakers]).reshape(
            len(speakers), world.dim_c if speakers else 0
        ),
        "goal": goals(scenario, world),
    } | treasures(scenario, world)


def place(mark) -> np.ndarray:
    """mpe2 moves treasures that were picked up far away; their place means nothing."""
    return mark.state.p_pos if getattr(mark, "alive", True) else np.zeros(2)


def treasures(scenario: str, world) -> dict[str, np.ndarray]:
    """The types of treasures and of what collectors hold; -1: none."""
    if scenario != "collect_treasure":
        return {}
    held = [-1 if a.holding is None else a.holding for a in world.agents if a.collector]
    kind = [mark.type if mark.alive else -1 for mark in world.landmarks]
    return {"kind": np.array(kind), "held": np.array(held)}


def respawn(scenario: str, before: dict[str, np.ndarray], world) -> np.ndarray:
    """[3K]: the uniform numbers with which the native world's treasures appear where mpe2's have,
    and with their types."""
    if scenario != "collect_treasure":
        return np.zeros(0)
    new, types = before["kind"] == -1, len(world.treasure_types)
    places = np.where(new[:, None], [(place(mark) / 0.95 + 1) / 2 for mark in world.landmarks], 0)
    kinds = np.where(new, [(mark.type + 0.5) / types for mark in world.landmarks], 0)
    return np.concatenate([places.ravel(), kinds])


def numbers(scenario: str, data: list) -> dict[str, float]:
    """By jmarl's names what mpe2's benchmark data says, of one step; `data` by agent."""
    if scenario == "simple_spread":
        _, bumps, away, occupied = zip(*data, strict=True)
        known = {"distance": away[0], "occupied_landmarks": occupied[0]}
        return known | {"collisions": sum(bumps) / 2}
    if scenario in ("simple_tag", "simple_world_comm"):
        return {"collisions": sum(data)}
    if scenario == "simple_adversary":  # squares; of good agents the last is of the goal
        nearest = min(squares[-1] for squares in data[1:])
        return {"adversary_distance": np.sqrt(data[0]), "good_distance": np.sqrt(nearest)}
    if scenario == "simple_speaker_listener":
        return {"distance": np.sqrt(-data[0])}
    if scenario == "simple_crypto":  # message and secret: Eve, Bob, Alice
        right = [float(message.argmax() == secret.argmax()) for message, secret in data]
        return {"eve_right": right[0], "bob_right": right[1]}
    if scenario == "collect_treasure":
        carriers = sum(held is not None for held, _ in data[:-2])
        return {"carriers": carriers, "treasures": data[0][1]}
    return {}


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
        if episode % 2:  # a line stays, because mpe2 remembers its places
            for entity in world.agents if scenario == "simple_line" else world.entities:
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
            obs, reward, terminated, truncated, info = env.step(chosen)
            met += contacts(world)
            data = [info[a].get("benchmark_data") for a in env.possible_agents]
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
                    "running": True,
                    "drawn": respawn(scenario, before, world),
                    "told": numbers(scenario, data) if options.get("benchmark_data") else {},
                }
            )
        missing = env.unwrapped.max_cycles - len(steps)
        record.append(steps + [steps[-1] | {"running": False}] * missing)

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
        worlds={name: over_time(name) for name in record[0][0]["before"]},
        first_obs=[np.stack([first[i] for first in firsts]) for i in range(len(world.agents))],
        actions=stacked("action"),
        obs=per_agent("obs"),
        delivered=per_agent("delivered"),
        state=stacked("state"),
        reward=stacked("reward"),
        terminated=stacked("terminated"),
        truncated=stacked("truncated"),
        running=stacked("running"),
        drawn=np.moveaxis(stacked("drawn"), 1, 2),
        told={
            name: np.array(
                [[s["told"][name] for s in steps] for steps in zip(*record, strict=True)]
            )
            for name in record[0][0]["told"]
        },
        contacts=met,
    )
