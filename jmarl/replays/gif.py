"""A replay as a moving picture with a legend: one episode, or several side by side."""

import io
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from jmarl.replays.canvas import LINE_HEIGHT, Pen, Point, few_colours, wrapped
from jmarl.replays.narration import HUNTS, Told, told
from jmarl.replays.replay import Replay
from jmarl.replays.scene import (
    CAUGHT,
    INK,
    PAPER,
    SMALL,
    Scene,
    Shot,
    arrow,
    colours,
    draw_scene,
    ring_colour,
)

MARGIN = 12
INDENT = 26  # of the legend's words after its symbols
SIDES = {1: 440, 4: 300, 9: 230, 16: 180}  # most episodes → pixels of one's square
MOST = max(SIDES)
TITLE, BODY = 16, 13  # sizes of text
LINE = BODY * LINE_HEIGHT
HOLD = 1500  # ms that the last state stays


class Layout(NamedTuple):
    width: int
    height: int
    scenes: tuple[Scene, ...]  # one for each episode shown
    legend_top: float


def gif(replay: Replay, episodes: Sequence[int], fps: int) -> bytes:
    """A frame for every state, T + 1 of them; it repeats for ever."""
    first, *rest = few_colours(frames(replay, episodes), colours(replay))
    durations = [round(1000 / fps)] * replay.steps + [HOLD]
    out = io.BytesIO()
    first.save(
        out, "GIF", save_all=True, append_images=rest, duration=durations, loop=0, optimize=False
    )
    return out.getvalue()


def frames(replay: Replay, episodes: Sequence[int]) -> Iterator[Image.Image]:
    layout = arranged(replay, episodes)
    stories = [told(replay, episode) for episode in episodes]
    for state in range(replay.steps + 1):
        yield _frame(replay, episodes, layout, stories, state).finished()


def arranged(replay: Replay, episodes: Sequence[int]) -> Layout:
    """Scenes in rows, words under each, the legend underneath all."""
    count = len(episodes)
    side = next(pixels for most, pixels in SIDES.items() if count <= most)
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    row = side + (_most_lines(replay, episodes[0], side) if count == 1 else 2) * LINE + MARGIN
    top = MARGIN + TITLE * LINE_HEIGHT + MARGIN / 2
    width = MARGIN + columns * (side + MARGIN)
    scenes = tuple(
        Scene(
            left=MARGIN + (i % columns) * (side + MARGIN),
            top=top + (i // columns) * row,
            side=side,
            reach=replay.reach(episode),
        )
        for i, episode in enumerate(episodes)
    )
    legend_top = top + rows * row
    lines = sum(len(words) for _, words in _legend(replay, width))
    return Layout(width, math.ceil(legend_top + lines * LINE + MARGIN), scenes, legend_top)


def _words(replay: Replay, episode: int, story: Told, state: int, width: float) -> list[str]:
    """Under a single episode."""
    paid = wrapped(f"reward so far: {_paid(replay, episode, state)}", BODY, width)
    return paid + wrapped(story.lines[state], BODY, width)


def _most_lines(replay: Replay, episode: int, width: float) -> int:
    story, states = told(replay, episode), range(replay.steps + 1)
    return max(len(_words(replay, episode, story, state, width)) for state in states)


def _frame(
    replay: Replay, episodes: Sequence[int], layout: Layout, stories: Sequence[Told], state: int
) -> Pen:
    pen = Pen(layout.width, layout.height, PAPER)
    pen.text((MARGIN, MARGIN), replay.env, TITLE, INK)
    step = f"step {state} of {replay.steps}"
    pen.text((layout.width - MARGIN, MARGIN), step, TITLE, INK, anchor="ra")
    for episode, scene, story in zip(episodes, layout.scenes, stories, strict=True):
        caught = story.caught[state] if story.caught else ()
        draw_scene(pen, Shot(replay, episode, state, scene, caught))
        lines = [f"episode {episode + 1}, reward so far", _paid(replay, episode, state)]
        if len(episodes) == 1:
            lines = _words(replay, episode, story, state, scene.side)
        for i, line in enumerate(lines):
            pen.text((scene.left, scene.top + scene.side + 5 + i * LINE), line, BODY, INK)
    _draw_legend(pen, replay, layout)
    return pen


def _paid(replay: Replay, episode: int, state: int) -> str:
    sums = replay.team_reward[episode, state]
    if len(sums) == 1:
        return f"{sums[0]:.1f}"
    parts = (f"{name} {paid:.1f}" for name, paid in zip(replay.team_names, sums, strict=True))
    return ", ".join(parts)


def _legend(replay: Replay, width: float) -> list[tuple[str, list[str]]]:
    """(symbol, lines of words); discs and rings are followed by their colour."""
    story, room = replay.story, width - 2 * MARGIN
    entries = [("none", wrapped(story.aim, BODY, room))]

    def entry(symbol: str, words: str) -> None:
        entries.append((symbol, wrapped(words, BODY, room - INDENT)))

    for role in story.roles:
        count = f" ({len(role.agents)} of them)" if len(role.agents) > 1 else ""
        entry(f"disc {role.colour}", f"{role.name}{count}: {role.aim}")
    for thing in story.things:
        entry(f"disc {thing.colour}", f"{thing.kind}: {thing.about}")
    for target in story.targets:
        entry(f"ring {ring_colour(replay, target.agents)}", target.about)
    if replay.scenario in HUNTS:
        entry(f"ring {CAUGHT}", "prey that is being caught")
    if any(agent.moves for agent in replay.cast.agents):
        entry("heading", "where an agent is heading, longer if fast; behind it, where it was")
        colour = next(r.colour for r in story.roles if replay.cast.agents[r.agents[0]].moves)
        entry(f"arrow {colour}", "where an agent pushes itself next; without an arrow, nowhere")
    if replay.cast.speakers:
        entry("bubble", "what an agent says: the number of a word, or bars of several at once")
    return entries


def _draw_legend(pen: Pen, replay: Replay, layout: Layout) -> None:
    y = layout.legend_top
    for symbol, lines in _legend(replay, layout.width):
        _symbol(pen, symbol, (MARGIN + 9, y + BODY / 2 + 1))
        left = MARGIN if symbol == "none" else MARGIN + INDENT
        for words in lines:
            pen.text((left, y), words, BODY, INK)
            y += LINE


def _symbol(pen: Pen, symbol: str, at: Point) -> None:
    kind, _, colour = symbol.partition(" ")
    x, y = at
    if kind == "disc":
        pen.disc(at, 6, colour)
    elif kind == "ring":
        pen.disc(at, 7, None, colour, 2.5)
    elif kind == "arrow":
        pen.disc(at, 8, colour)
        pen.shape(arrow(at, np.array([1.0, 0.0]), 8), PAPER)
    elif kind == "heading":
        pen.line((x - 7, y), (x + 7, y), INK, 1.6)
    elif kind == "bubble":
        pen.box((x - 8, y - 6), (16, 12), PAPER, INK, rounding=4)
        pen.text((x, y), "3", SMALL, INK, anchor="mm")
