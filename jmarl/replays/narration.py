"""What happened in a replay, in words: a line for every state, and who scored when."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jmarl.replays.replay import Replay

HUNTS = ("simple_tag", "simple_world_comm")  # worlds in which touching prey scores


class Event(NamedTuple):
    state: int
    text: str


class Told(NamedTuple):
    lines: list[str]  # [T+1]
    events: list[Event]
    caught: tuple[tuple[int, ...], ...] = ()  # [T+1] prey that are touched, where that scores


def told(replay: Replay, episode: int) -> Told:
    return TELLERS.get(replay.scenario, _errands)(replay, episode)


def target_of(replay: Replay, episode: int, goal: int) -> int:
    """The landmark that entry `goal` of the world's goals names."""
    return int(replay.goal[episode, goal])


def _apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[…, n, 2] × […, m, 2] → […, n, m] distances."""
    return np.linalg.norm(a[..., :, None, :] - b[..., None, :, :], axis=-1)


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def _errands(replay: Replay, episode: int) -> Told:
    """How far each is from where it must go."""
    parts = []
    for target in replay.story.targets:
        place = replay.landmarks[episode, target_of(replay, episode, target.goal)]
        for i in target.agents:
            away = np.linalg.norm(replay.pos[episode, :, i] - place, axis=-1)
            name = replay.story.role_of(i).name
            parts.append([f"{name} is {d:.2f} from its goal" for d in away])
    states = replay.steps + 1
    return Told([", ".join(line) for line in zip(*parts, strict=True)] or [""] * states, [])


def _cover(replay: Replay, episode: int) -> Told:
    """Landmarks with an agent on them, and agents that touch."""
    pos, places = replay.pos[episode], replay.landmarks[episode]
    radius = replay.cast.radius
    covered = (_apart(pos, places[None]) < radius[:, None]).any(1).sum(-1)
    touching = np.triu(_apart(pos, pos) < radius[:, None] + radius, k=1)
    bumps = touching.sum((1, 2)) * replay.cast.solid_agents
    lines = [f"{c} of {len(places)} landmarks covered" for c in covered]
    ends = ["" if b == 0 else f", {b} collision" + "s" * (b > 1) for b in bumps.tolist()]
    return Told([line + end for line, end in zip(lines, ends, strict=True)], [])


def _hunt(replay: Replay, episode: int) -> Told:
    """Every step of touching scores, so a long touch counts several times."""
    cast, pos = replay.cast, replay.pos[episode]
    hunters = [i for i, agent in enumerate(cast.agents) if agent.team == "adversary"]
    prey = [i for i, agent in enumerate(cast.agents) if agent.team != "adversary"]
    caught = _touches(pos[:, hunters], cast.radius[hunters], pos[:, prey], cast.radius[prey])
    lines = [f"prey caught {_times(n)}" for n in caught.sum((1, 2)).cumsum()]
    events = [
        Event(t, f"{cast.agents[hunters[h]].name} catches {cast.agents[prey[p]].name}")
        for t, h, p in _beginnings(caught)
    ]
    food = [i for i, landmark in enumerate(cast.landmarks) if landmark.kind == "food"]
    if food:
        size = np.array([cast.landmarks[i].radius for i in food])
        places = np.broadcast_to(replay.landmarks[episode, food], (len(pos), len(food), 2))
        eaten = _touches(pos[:, prey], cast.radius[prey], places, size)
        meals = eaten.sum((1, 2)).cumsum()
        lines = [f"{line}, food eaten {_times(n)}" for line, n in zip(lines, meals, strict=True)]
        events += [
            Event(t, f"{cast.agents[prey[p]].name} finds food") for t, p, _ in _beginnings(eaten)
        ]
    now = tuple(tuple(prey[p] for p in np.flatnonzero(touch.any(0))) for touch in caught)
    return Told(lines, sorted(events), now)


def _touches(
    a: np.ndarray, a_radius: np.ndarray, b: np.ndarray, b_radius: np.ndarray
) -> np.ndarray:
    """[T+1, n, m] bool; in the first state nothing is paid, so nothing counts."""
    touch = _apart(a, b) < a_radius[:, None] + b_radius
    touch[0] = False
    return touch


def _beginnings(touch: np.ndarray) -> list[tuple[int, int, int]]:
    found = np.argwhere(touch[1:] & ~touch[:-1])
    return [(int(t) + 1, int(i), int(j)) for t, i, j in found]


def _race(replay: Replay, episode: int) -> Told:
    """Who is nearer to the goal, the best of the good or of the adversaries."""
    (target,) = replay.story.targets
    place = replay.landmarks[episode, target_of(replay, episode, target.goal)]
    away = np.linalg.norm(replay.pos[episode] - place, axis=-1)
    rivals = [i for i in range(away.shape[1]) if i not in target.agents]
    good, adversary = away[:, list(target.agents)].min(1), away[:, rivals].min(1)
    lines = [
        f"from the goal: good {g:.2f}, adversary {a:.2f}"
        for g, a in zip(good, adversary, strict=True)
    ]
    ahead = good < adversary
    changes = np.flatnonzero(ahead[1:] != ahead[:-1]) + 1
    names = {True: "the good side", False: "the adversary"}
    events = [Event(int(t), f"{names[bool(ahead[t])]} is nearer to the goal now") for t in changes]
    return Told(lines, events)


def _secret(replay: Replay, episode: int) -> Told:
    """What Alice says, what Bob and Eve make of it."""
    secret, key = (int(k) + 1 for k in replay.goal[episode])
    said = replay.message[episode]  # [T+1, 3, C] of Eve, Bob, Alice
    words, spoken = said.argmax(-1) + 1, np.abs(said).max(-1) > 0
    right = (words == secret) & spoken
    eve, bob, _ = right.cumsum(0).T
    lines = [f"secret {secret}, key {key}: nothing said yet"]
    events: list[Event] = []
    for t in range(1, len(said)):
        guess = f"Alice says {words[t, 2]}, Bob takes it for {words[t, 1]}, Eve for {words[t, 0]}"
        score = f"right so far: Bob {bob[t]}, Eve {eve[t]} of {t}"
        lines.append(f"secret {secret}, key {key}: {guess}; {score}")
        if t == 1 or (right[t, :2] != right[t - 1, :2]).any():
            events.append(Event(t, _guessed(bool(right[t, 1]), bool(right[t, 0]))))
    return Told(lines, events)


def _guessed(bob: bool, eve: bool) -> str:
    if bob and eve:
        return "Bob and Eve both have the secret"
    if bob or eve:
        return "Bob alone has the secret" if bob else "Eve alone has the secret"
    return "neither Bob nor Eve has the secret"


TELLERS: dict[str, Callable[[Replay, int], Told]] = {
    "simple": _cover,
    "simple_spread": _cover,
    "simple_adversary": _race,
    "simple_push": _race,
    "simple_crypto": _secret,
    **dict.fromkeys(HUNTS, _hunt),
}
