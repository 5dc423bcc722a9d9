"""Describes a replay in words: one line per state, and a list of events."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jmarl.replays.replay import Replay

HUNTS = ("simple_tag", "simple_world_comm")  # scenarios with rewards for touching prey


class Event(NamedTuple):
    state: int
    text: str


class Narration(NamedTuple):
    lines: list[str]  # [T+1]
    events: list[Event]
    caught: tuple[tuple[int, ...], ...] = ()  # [T+1] the touched prey, in HUNTS


def narrate(replay: Replay, episode: int) -> Narration:
    told = NARRATORS.get(replay.scenario, _distances_to_goals)(replay, episode)
    end = replay.steps if replay.length is None else int(replay.length[episode])
    return told if end == replay.steps else _until(told, end, replay.steps)


def _until(told: Narration, end: int, steps: int) -> Narration:
    """The states after an early end, which are all alike, say what the last one says."""
    rest = steps - end
    events = [event for event in told.events if event.state <= end]
    return Narration(
        told.lines[: end + 1] + [told.lines[end]] * rest,
        [*events, Event(end, "success: the episode ends")],
        told.caught and told.caught[: end + 1] + (told.caught[end],) * rest,
    )


def target_of(replay: Replay, episode: int, goal: int) -> int:
    """The index of the landmark that `World.goal[goal]` refers to."""
    return int(replay.goal[episode, goal])


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[…, n, 2] × […, m, 2] → […, n, m] distances."""
    return np.linalg.norm(a[..., :, None, :] - b[..., None, :, :], axis=-1)


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def _distances_to_goals(replay: Replay, episode: int) -> Narration:
    """The distance of each agent from its goal."""
    parts = []
    for target in replay.legend.targets:
        place = replay.landmarks[episode, target_of(replay, episode, target.goal)]
        for i in target.agents:
            away = np.linalg.norm(replay.pos[episode, :, i] - place, axis=-1)
            name = replay.legend.role_of(i).name
            parts.append([f"{name} is {d:.2f} from its goal" for d in away])
    states = replay.steps + 1
    return Narration([", ".join(line) for line in zip(*parts, strict=True)] or [""] * states, [])


def _cover(replay: Replay, episode: int) -> Narration:
    """Covered landmarks and collisions."""
    pos, places = replay.pos[episode], replay.landmarks[episode]
    radius = replay.entities.radius
    covered = (_distances(pos, places[None]) < radius[:, None]).any(1).sum(-1)
    touching = np.triu(_distances(pos, pos) < radius[:, None] + radius, k=1)
    bumps = touching.sum((1, 2)) * replay.entities.solid_agents
    lines = [f"{c} of {len(places)} landmarks covered" for c in covered]
    ends = ["" if b == 0 else f", {b} collision" + "s" * (b > 1) for b in bumps.tolist()]
    return Narration([line + end for line, end in zip(lines, ends, strict=True)], [])


def _hunt(replay: Replay, episode: int) -> Narration:
    """Captures, and food that prey eat. Every step of contact is rewarded, so a long contact
    counts several times."""
    entities, pos = replay.entities, replay.pos[episode]
    hunters = [i for i, agent in enumerate(entities.agents) if agent.team == "adversary"]
    prey = [i for i, agent in enumerate(entities.agents) if agent.team != "adversary"]
    caught = _touches(
        pos[:, hunters], entities.radius[hunters], pos[:, prey], entities.radius[prey]
    )
    lines = [f"prey caught {_times(n)}" for n in caught.sum((1, 2)).cumsum()]
    events = [
        Event(t, f"{entities.agents[hunters[h]].name} catches {entities.agents[prey[p]].name}")
        for t, h, p in _onsets(caught)
    ]
    food = [i for i, landmark in enumerate(entities.landmarks) if landmark.kind == "food"]
    if food:
        size = np.array([entities.landmarks[i].radius for i in food])
        places = np.broadcast_to(replay.landmarks[episode, food], (len(pos), len(food), 2))
        eaten = _touches(pos[:, prey], entities.radius[prey], places, size)
        meals = eaten.sum((1, 2)).cumsum()
        lines = [f"{line}, food eaten {_times(n)}" for line, n in zip(lines, meals, strict=True)]
        events += [
            Event(t, f"{entities.agents[prey[p]].name} finds food") for t, p, _ in _onsets(eaten)
        ]
    now = tuple(tuple(prey[p] for p in np.flatnonzero(touch.any(0))) for touch in caught)
    return Narration(lines, sorted(events), now)


def _touches(
    a: np.ndarray, a_radius: np.ndarray, b: np.ndarray, b_radius: np.ndarray
) -> np.ndarray:
    """[T+1, n, m] bool; contacts in the first state do not count, as no reward depends on them."""
    touch = _distances(a, b) < a_radius[:, None] + b_radius
    touch[0] = False
    return touch


def _onsets(touch: np.ndarray) -> list[tuple[int, int, int]]:
    found = np.argwhere(touch[1:] & ~touch[:-1])
    return [(int(t) + 1, int(i), int(j)) for t, i, j in found]


def _race(replay: Replay, episode: int) -> Narration:
    """Distances to the goal: of the nearest good agent and the nearest adversary."""
    (target,) = replay.legend.targets
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
    return Narration(lines, events)


def _secret(replay: Replay, episode: int) -> Narration:
    """Alice's message, and Bob's and Eve's guesses."""
    secret, key = (int(k) + 1 for k in replay.goal[episode])
    messages = replay.message[episode]  # [T+1, 3, C] of Eve, Bob, Alice
    words, spoken = messages.argmax(-1) + 1, np.abs(messages).max(-1) > 0
    right = (words == secret) & spoken
    eve, bob, _ = right.cumsum(0).T
    lines = [f"secret {secret}, key {key}: no messages yet"]
    events: list[Event] = []
    for t in range(1, len(messages)):
        guess = f"Alice says {words[t, 2]}, Bob guesses {words[t, 1]}, Eve {words[t, 0]}"
        score = f"correct so far: Bob {bob[t]}, Eve {eve[t]} of {t}"
        lines.append(f"secret {secret}, key {key}: {guess}; {score}")
        if t == 1 or (right[t, :2] != right[t - 1, :2]).any():
            events.append(Event(t, _guessed(bool(right[t, 1]), bool(right[t, 0]))))
    return Narration(lines, events)


def _guessed(bob: bool, eve: bool) -> str:
    if bob and eve:
        return "Bob and Eve both guess the secret"
    if bob or eve:
        return "only Bob guesses the secret" if bob else "only Eve guesses the secret"
    return "neither Bob nor Eve guesses the secret"


def _figure(replay: Replay, episode: int) -> Narration:
    """The mean distance of agents from their places."""
    away = -replay.reward[episode].mean(-1)
    lines = [f"agents are {d:.2f} from their places on average" for d in away]
    return Narration(["agents look for their places", *lines], [])


def _collect(replay: Replay, episode: int) -> Narration:
    """Treasures that are carried and delivered."""
    assert replay.cargo is not None
    names = [agent.name for agent in replay.entities.agents]
    carried, delivered = replay.cargo.carried[episode], replay.cargo.delivered[episode].cumsum()
    loads = (carried >= 0).sum(-1)
    lines = [f"{n} carried, {d} delivered" for n, d in zip(loads, delivered, strict=True)]
    events = []
    for t, i in np.argwhere(carried[1:] != carried[:-1]):
        before, now = carried[t, i], carried[t + 1, i]
        goes = f"delivers to {names[before]}" if now < 0 else f"has a treasure for {names[now]}"
        events.append(Event(int(t) + 1, f"{names[i]} {goes}"))
    return Narration(lines, events)


NARRATORS: dict[str, Callable[[Replay, int], Narration]] = {
    "simple": _cover,
    "simple_spread": _cover,
    "simple_adversary": _race,
    "simple_push": _race,
    "simple_crypto": _secret,
    "simple_formation": _figure,
    "simple_line": _figure,
    "collect_treasure": _collect,
    **dict.fromkeys(HUNTS, _hunt),
}
