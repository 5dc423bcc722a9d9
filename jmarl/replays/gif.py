"""A replay as an animated GIF with a legend: one episode, or several side by side."""

import io
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from jmarl.replays.canvas import LINE_HEIGHT, Canvas, Point, quantize, wrap
from jmarl.replays.narration import HUNTS, Narration, narrate
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
INDENT = 26  # of the legend's text after its symbols
SIDES = {1: 440, 4: 300, 9: 230, 16: 180}  # up to this many episodes → pixels of one scene's side
MOST = max(SIDES)
TITLE, BODY = 16, 13  # text sizes
LINE = BODY * LINE_HEIGHT
HOLD = 1500  # ms for which the last state is shown


class PictureLayout(NamedTuple):
    width: int
    height: int
    scenes: tuple[Scene, ...]  # one per episode
    legend_top: float


def gif(replay: Replay, episodes: Sequence[int], fps: int) -> bytes:
    """An endless GIF with one frame per state, T + 1 in total."""
    first, *rest = quantize(frames(replay, episodes), colours(replay))
    durations = [round(1000 / fps)] * replay.steps + [HOLD]
    out = io.BytesIO()
    first.save(
        out, "GIF", save_all=True, append_images=rest, duration=durations, loop=0, optimize=False
    )
    return out.getvalue()


def frames(replay: Replay, episodes: Sequence[int]) -> Iterator[Image.Image]:
    layout = make_layout(replay, episodes)
    narrations = [narrate(replay, episode) for episode in episodes]
    for state in range(replay.steps + 1):
        yield _frame(replay, episodes, layout, narrations, state).finished()


def make_layout(replay: Replay, episodes: Sequence[int]) -> PictureLayout:
    """Scenes in rows, with text under each and the legend at the bottom."""
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
    return PictureLayout(width, math.ceil(legend_top + lines * LINE + MARGIN), scenes, legend_top)


def _caption(
    replay: Replay, episode: int, narration: Narration, state: int, width: float
) -> list[str]:
    """The lines under the scene of a single episode."""
    reward = wrap(f"reward so far: {_reward_text(replay, episode, state)}", BODY, width)
    return reward + wrap(narration.lines[state], BODY, width)


def _most_lines(replay: Replay, episode: int, width: float) -> int:
    narration, states = narrate(replay, episode), range(replay.steps + 1)
    return max(len(_caption(replay, episode, narration, state, width)) for state in states)


def _frame(
    replay: Replay,
    episodes: Sequence[int],
    layout: PictureLayout,
    narrations: Sequence[Narration],
    state: int,
) -> Canvas:
    canvas = Canvas(layout.width, layout.height, PAPER)
    canvas.text((MARGIN, MARGIN), replay.env, TITLE, INK)
    step = f"step {state} of {replay.steps}"
    canvas.text((layout.width - MARGIN, MARGIN), step, TITLE, INK, anchor="ra")
    for episode, scene, narration in zip(episodes, layout.scenes, narrations, strict=True):
        caught = narration.caught[state] if narration.caught else ()
        draw_scene(canvas, Shot(replay, episode, state, scene, caught))
        lines = [f"episode {episode + 1}, reward so far", _reward_text(replay, episode, state)]
        if len(episodes) == 1:
            lines = _caption(replay, episode, narration, state, scene.side)
        for i, line in enumerate(lines):
            canvas.text((scene.left, scene.top + scene.side + 5 + i * LINE), line, BODY, INK)
    _draw_legend(canvas, replay, layout)
    return canvas


def _reward_text(replay: Replay, episode: int, state: int) -> str:
    sums = replay.team_reward[episode, state]
    if len(sums) == 1:
        return f"{sums[0]:.1f}"
    teams = zip(replay.team_names, sums, strict=True)
    return ", ".join(f"{name} {reward:.1f}" for name, reward in teams)


def _legend(replay: Replay, width: float) -> list[tuple[str, list[str]]]:
    """(symbol, lines of text); the names of discs, rings and arrows are followed by a colour."""
    legend, room = replay.legend, width - 2 * MARGIN
    entries = [("none", wrap(legend.aim, BODY, room))]

    def entry(symbol: str, words: str) -> None:
        entries.append((symbol, wrap(words, BODY, room - INDENT)))

    for role in legend.roles:
        count = f" ({len(role.agents)} of them)" if len(role.agents) > 1 else ""
        entry(f"disc {role.colour}", f"{role.name}{count}: {role.aim}")
    for thing in legend.things:
        entry(f"disc {thing.colour}", f"{thing.kind}: {thing.about}")
    for target in legend.targets:
        entry(f"ring {ring_colour(replay, target.agents)}", target.about)
    if replay.scenario in HUNTS:
        entry(f"ring {CAUGHT}", "prey that is being caught")
    if any(agent.moves for agent in replay.entities.agents):
        entry("heading", "an agent's velocity; behind it, its path")
        colour = next(r.colour for r in legend.roles if replay.entities.agents[r.agents[0]].moves)
        entry(f"arrow {colour}", "the direction of an agent's next push; no arrow: no push")
    if replay.entities.speakers:
        entry("bubble", "an agent's message: the number of a word, or one bar per component")
    return entries


def _draw_legend(canvas: Canvas, replay: Replay, layout: PictureLayout) -> None:
    y = layout.legend_top
    for symbol, lines in _legend(replay, layout.width):
        _symbol(canvas, symbol, (MARGIN + 9, y + BODY / 2 + 1))
        left = MARGIN if symbol == "none" else MARGIN + INDENT
        for words in lines:
            canvas.text((left, y), words, BODY, INK)
            y += LINE


def _symbol(canvas: Canvas, symbol: str, at: Point) -> None:
    kind, _, colour = symbol.partition(" ")
    x, y = at
    if kind == "disc":
        canvas.disc(at, 6, colour)
    elif kind == "ring":
        canvas.disc(at, 7, None, colour, 2.5)
    elif kind == "arrow":
        canvas.disc(at, 8, colour)
        canvas.shape(arrow(at, np.array([1.0, 0.0]), 8), PAPER)
    elif kind == "heading":
        canvas.line((x - 7, y), (x + 7, y), INK, 1.6)
    elif kind == "bubble":
        canvas.box((x - 8, y - 6), (16, 12), PAPER, INK, rounding=4)
        canvas.text((x, y), "3", SMALL, INK, anchor="mm")
