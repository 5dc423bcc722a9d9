"""A replay as one HTML file that needs nothing else: played, stopped and searched in a browser."""

from typing import Any

import numpy as np

from jmarl.errors import ConfigError
from jmarl.presentation.pages import filled
from jmarl.replays.attention import Attention
from jmarl.replays.narration import HUNTS, target_of, told
from jmarl.replays.replay import Replay

DIGITS = 3  # of positions; a pixel is more than 0.002
SHARES = 1000  # attention is written in whole thousandths
LIMIT = 5_000_000  # bytes


def page(replay: Replay, title: str, about: str) -> str:
    """`title` names the run; `about` says how it was played."""
    made = filled("replay.html", title, described(replay, title, about))
    size = len(made.encode())
    if size > LIMIT:
        raise ConfigError(
            f"the page of {replay.episodes} episodes would have {size / 1e6:.1f} MB, more than "
            f"{LIMIT / 1e6:.0f}; ask for fewer with --episodes."
        )
    return made


def described(replay: Replay, title: str, about: str) -> dict[str, Any]:
    """Everything that the page shows, as plain data."""
    cast, story = replay.cast, replay.story
    roles = [
        {"name": role.name, "colour": role.colour, "aim": role.aim, "count": len(role.agents)}
        for role in story.roles
    ]
    return {
        "title": title,
        "about": about,
        "env": replay.env,
        "aim": story.aim,
        "steps": replay.steps,
        "roles": roles,
        "things": [thing._asdict() for thing in story.things],
        "targets": [
            {"about": target.about, "role": _ring_role(replay, target.agents)}
            for target in story.targets
        ],
        "teams": [
            {"name": name, "agents": team.agents}
            for name, team in zip(replay.team_names, replay.teams, strict=True)
        ],
        "agents": [
            {
                "name": agent.name,
                "role": story.roles.index(story.role_of(i)),
                "radius": agent.radius,
                "moves": agent.moves,
            }
            for i, agent in enumerate(cast.agents)
        ],
        "landmarks": [{"kind": mark.kind, "radius": mark.radius} for mark in cast.landmarks],
        "letters": story.letters,
        "hunt": replay.scenario in HUNTS,
        "speakers": cast.speakers,
        "attention": [_maps(attention) for attention in replay.attention],
        "episodes": [_episode(replay, e) for e in range(replay.episodes)],
    }


def _ring_role(replay: Replay, agents: tuple[int, ...]) -> int | None:
    """Whose colour a ring has; None: that of goals."""
    if len(replay.story.targets) < 2:
        return None
    return replay.story.roles.index(replay.story.role_of(agents[0]))


def _episode(replay: Replay, e: int) -> dict[str, Any]:
    words = told(replay, e)
    speakers = range(len(replay.cast.speakers))
    return {
        "reach": round(replay.reach(e), DIGITS),
        "pos": _rounded(replay.pos[e]),
        "vel": _rounded(replay.vel[e]),
        "landmarks": _rounded(replay.landmarks[e]),
        "said": [[replay.word(e, t, k) for k in speakers] for t in range(replay.steps + 1)],
        "move": _rounded(replay.move[e]),
        "reward": _rounded(replay.reward[e]),
        "targets": [target_of(replay, e, target.goal) for target in replay.story.targets],
        "lines": words.lines,
        "events": words.events,
        "caught": words.caught,
        "attention": [_weights(attention, e) for attention in replay.attention],
    }


def _maps(attention: Attention) -> dict[str, Any]:
    """What is the same in all episodes."""
    maps = [{"part": part, "block": block} for part, block, _ in attention.maps]
    heads = attention.maps[0].weights.shape[2]
    return {"agents": attention.agents, "maps": maps, "heads": heads}


def _weights(attention: Attention, e: int) -> dict[str, Any]:
    """By map, step, head and agent; and who decided first, second, … if that was drawn."""
    shares = [np.rint(told.weights[e] * SHARES).astype(int).tolist() for told in attention.maps]
    order = None if attention.order is None else attention.order[e].tolist()
    return {"maps": shares, "order": order}


def _rounded(x: np.ndarray) -> Any:
    return np.round(x.astype(np.float64), DIGITS).tolist()
