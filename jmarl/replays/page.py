"""A replay as one self-contained HTML file with a player."""

from typing import Any

import numpy as np

from jmarl.errors import ConfigError
from jmarl.presentation.pages import filled
from jmarl.replays.attention import TeamAttention
from jmarl.replays.narration import HUNTS, narrate, target_of
from jmarl.replays.replay import Replay

DIGITS = 3  # of positions; a pixel is more than 0.002
SHARES = 1000  # attention weights are stored in whole thousandths
LIMIT = 5_000_000  # bytes


def page(replay: Replay, title: str, about: str) -> str:
    """The HTML text. `title` names the run; `about` says how the episodes were played."""
    made = filled("replay.html", title, page_data(replay, title, about))
    size = len(made.encode())
    if size > LIMIT:
        raise ConfigError(
            f"the page of {replay.episodes} episodes would have {size / 1e6:.1f} MB, more than "
            f"{LIMIT / 1e6:.0f}; choose fewer with --episodes."
        )
    return made


def page_data(replay: Replay, title: str, about: str) -> dict[str, Any]:
    """Everything that the page shows, as JSON-compatible data."""
    entities, legend = replay.entities, replay.legend
    roles = [
        {"name": role.name, "colour": role.colour, "aim": role.aim, "count": len(role.agents)}
        for role in legend.roles
    ]
    return {
        "title": title,
        "about": about,
        "env": replay.env,
        "aim": legend.aim,
        "steps": replay.steps,
        "roles": roles,
        "things": [thing._asdict() for thing in legend.things],
        "targets": [
            {"about": target.about, "role": _ring_role(replay, target.agents)}
            for target in legend.targets
        ],
        "teams": [
            {"name": name, "agents": team.agents}
            for name, team in zip(replay.team_names, replay.teams, strict=True)
        ],
        "agents": [
            {
                "name": agent.name,
                "role": legend.roles.index(legend.role_of(i)),
                "radius": agent.radius,
                "moves": agent.moves,
            }
            for i, agent in enumerate(entities.agents)
        ],
        "landmarks": [{"kind": mark.kind, "radius": mark.radius} for mark in entities.landmarks],
        "letters": legend.letters,
        "hunt": replay.scenario in HUNTS,
        "speakers": entities.speakers,
        "attention": [_maps(attention) for attention in replay.attention],
        "episodes": [_episode(replay, e) for e in range(replay.episodes)],
    }


def _ring_role(replay: Replay, agents: tuple[int, ...]) -> int | None:
    """The role whose colour a ring has; None: the colour of goals."""
    if len(replay.legend.targets) < 2:
        return None
    return replay.legend.roles.index(replay.legend.role_of(agents[0]))


def _episode(replay: Replay, e: int) -> dict[str, Any]:
    narration = narrate(replay, e)
    speakers = range(len(replay.entities.speakers))
    return {
        "reach": round(replay.reach(e), DIGITS),
        "pos": _rounded(replay.pos[e]),
        "vel": _rounded(replay.vel[e]),
        "landmarks": _landmarks(replay, e),
        "carried": _carried(replay, e),
        "said": [[replay.word(e, t, k) for k in speakers] for t in range(replay.steps + 1)],
        "move": _rounded(replay.move[e]),
        "reward": _rounded(replay.reward[e]),
        "targets": [target_of(replay, e, target.goal) for target in replay.legend.targets],
        "lines": narration.lines,
        "events": narration.events,
        "caught": narration.caught,
        "attention": [_weights(attention, e) for attention in replay.attention],
    }


def _landmarks(replay: Replay, e: int) -> list[list[Any]]:
    """By state, or of all states at once, place and colour of each landmark; null: not there."""
    states = range(1 if replay.cargo is None else replay.steps + 1)
    places = [_rounded(replay.places(e, t)) for t in states]
    return [
        [
            None if colour is None else {"at": place, "colour": colour}
            for i, place in enumerate(at)
            for colour in [replay.landmark_colour(e, t, i)]
        ]
        for t, at in zip(states, places, strict=True)
    ]


def _carried(replay: Replay, e: int) -> list[list[str | None]]:
    """By state, the colour of what each agent carries; empty where nobody ever does."""
    if replay.cargo is None:
        return []
    agents = range(len(replay.entities.agents))
    return [[replay.carried_colour(e, t, i) for i in agents] for t in range(replay.steps + 1)]


def _maps(attention: TeamAttention) -> dict[str, Any]:
    """What all episodes share."""
    maps = [{"part": part, "block": block} for part, block, _ in attention.maps]
    heads = attention.maps[0].weights.shape[2]
    return {"agents": attention.agents, "maps": maps, "heads": heads}


def _weights(attention: TeamAttention, e: int) -> dict[str, Any]:
    """Weights by map, step, head and agent; and the order of turns, if it is random."""
    shares = [np.rint(item.weights[e] * SHARES).astype(int).tolist() for item in attention.maps]
    order = None if attention.order is None else attention.order[e].tolist()
    return {"maps": shares, "order": order}


def _rounded(x: np.ndarray) -> Any:
    return np.round(x.astype(np.float64), DIGITS).tolist()
