"""One state of one world, drawn: the field, landmarks, agents, what they do and say."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jmarl.replays.canvas import Pen, Point, mixed, text_width
from jmarl.replays.narration import target_of
from jmarl.replays.replay import Replay

PAPER, FIELD, RULE, INK = "#ffffff", "#f1f3f5", "#c9ced6", "#1f2937"
GOAL, CAUGHT = "#e6a700", "#d4002a"
SMALL = 11  # size of text within the scene
HEADING = 0.12  # seconds of travel that an agent's line shows
REST = 1e-3  # slower than this is standing still
RING = 4  # pixels from a landmark to the ring around it
TRAIL = 8  # states before this one that an agent's trail goes through
PUSH = 0.62  # of an agent's radius: half the length of the arrow within
STILL = 0.05  # a weaker push than this is none
BAR, BUBBLE = 4, 15  # pixels: the width of a bar within a bubble, the height of a bubble


class Scene(NamedTuple):
    """Where the square ±reach of a world lies in the picture; y points up."""

    left: float
    top: float
    side: float
    reach: float

    def at(self, place: np.ndarray) -> Point:
        x, y = (float(v) / self.reach for v in place)
        return self.left + (1 + x) / 2 * self.side, self.top + (1 - y) / 2 * self.side

    def length(self, distance: float) -> float:
        return distance / self.reach / 2 * self.side


class Shot(NamedTuple):
    """What is drawn, and where."""

    replay: Replay
    episode: int
    state: int
    scene: Scene
    caught: tuple[int, ...] = ()  # agents that are touched by their hunters

    def pos(self, agent: int) -> np.ndarray:
        return self.replay.pos[self.episode, self.state, agent]

    def middle(self, agent: int) -> Point:
        return self.scene.at(self.pos(agent))

    def radius(self, agent: int) -> float:
        return self.scene.length(self.replay.cast.agents[agent].radius)


def colours(replay: Replay) -> list[str]:
    """All that a scene is drawn in, but for smooth edges."""
    own = [look.colour for look in (*replay.story.roles, *replay.story.things)]
    return [PAPER, INK, FIELD, RULE, GOAL, CAUGHT, *own]


def ring_colour(replay: Replay, agents: Sequence[int]) -> str:
    """Where agents have different goals, a ring is of the colour of those who must go there."""
    different = len(replay.story.targets) > 1
    return replay.story.role_of(agents[0]).colour if different else GOAL


def draw_scene(pen: Pen, shot: Shot) -> None:
    """From the ground up: what is small, and what is said, lies on top."""
    scene, agents = shot.scene, range(len(shot.replay.cast.agents))
    pen.box((scene.left, scene.top), (scene.side, scene.side), FIELD)
    length = scene.length(2)
    pen.box(scene.at(np.array([-1.0, 1.0])), (length, length), PAPER, RULE)
    _landmarks(pen, shot)
    for agent in agents:
        _trail(pen, shot, agent)
    for agent in agents:
        _agent(pen, shot, agent)
    _outlines(pen, shot)
    _rings(pen, shot)
    for agent in shot.caught:
        pen.disc(shot.middle(agent), shot.radius(agent) + RING, None, CAUGHT, 2.5)
    _names(pen, shot)
    for speaker, agent in enumerate(shot.replay.cast.speakers):
        word = shot.replay.word(shot.episode, shot.state, speaker)
        if word is not None:
            _bubble(pen, scene, shot.middle(agent), shot.radius(agent), word)


def _landmarks(pen: Pen, shot: Shot) -> None:
    replay, scene = shot.replay, shot.scene
    places = replay.landmarks[shot.episode]
    for thing in replay.story.things:  # in the order of drawing
        for place, landmark in zip(places, replay.cast.landmarks, strict=True):
            if landmark.kind == thing.kind:
                edge = mixed(thing.colour, INK, 0.25)
                pen.disc(scene.at(place), scene.length(landmark.radius), thing.colour, edge)


def _trail(pen: Pen, shot: Shot, agent: int) -> None:
    first = max(0, shot.state - TRAIL)
    before = shot.replay.pos[shot.episode, first : shot.state + 1, agent]
    faint = mixed(shot.replay.story.role_of(agent).colour, PAPER, 0.5)
    for start, end in itertools.pairwise(before):
        pen.line(shot.scene.at(start), shot.scene.at(end), faint, 1.2)


def _agent(pen: Pen, shot: Shot, agent: int) -> None:
    """A disc, within it an arrow where the agent pushes next, and from its edge on a line as long
    as it is fast."""
    replay, pos = shot.replay, shot.pos(agent)
    vel = replay.vel[shot.episode, shot.state, agent]
    speed = float(np.linalg.norm(vel))
    colour = replay.story.role_of(agent).colour
    pen.disc(shot.middle(agent), shot.radius(agent), colour, PAPER, 0.8)
    if speed > REST:
        edge = pos + vel / speed * replay.cast.agents[agent].radius
        pen.line(shot.scene.at(edge), shot.scene.at(edge + vel * HEADING), INK, 1.6)
    if shot.state < replay.steps:
        move = replay.move[shot.episode, shot.state, agent]
        pen.shape(arrow(shot.middle(agent), move, shot.radius(agent)), PAPER)


def arrow(middle: Point, move: np.ndarray, radius: float) -> list[Point]:
    """The corners of an arrow `[x, y]` through the middle, as long as the push is strong; none for
    those who stay. y points up in the world, down in the picture."""
    strength = float(np.linalg.norm(move))
    if strength < STILL:
        return []
    along = np.array([move[0], -move[1]]) / strength
    across = np.array([-along[1], along[0]])
    length, width = PUSH * radius * min(1.0, max(0.4, strength)), PUSH * radius
    outline = [(-1, 0.16), (0.1, 0.16), (0.1, 0.6), (1, 0), (0.1, -0.6), (0.1, -0.16), (-1, -0.16)]
    corners = (np.array(middle) + a * length * along + b * width * across for a, b in outline)
    return [(float(x), float(y)) for x, y in corners]


def _outlines(pen: Pen, shot: Shot) -> None:
    """Of small landmarks, which agents may cover; and their letters."""
    replay, letters = shot.replay, shot.replay.story.letters
    largest = replay.cast.radius.max()
    for i, landmark in enumerate(replay.cast.landmarks):
        x, y = shot.scene.at(replay.landmarks[shot.episode, i])
        radius = shot.scene.length(landmark.radius)
        if landmark.radius < largest:
            pen.disc((x, y), radius + 0.5, None, PAPER, 1)
        if i < len(letters):
            pen.text((x, y - radius - RING), letters[i], SMALL, INK, "md", PAPER)


def _rings(pen: Pen, shot: Shot) -> None:
    replay = shot.replay
    reached: list[int] = []
    for target in replay.story.targets:
        i = target_of(replay, shot.episode, target.goal)
        at = shot.scene.at(replay.landmarks[shot.episode, i])
        inner = shot.scene.length(replay.cast.landmarks[i].radius)
        colour = ring_colour(replay, target.agents)
        pen.disc(at, inner + RING * (1 + reached.count(i)), None, colour, 2.5)
        reached.append(i)


def _names(pen: Pen, shot: Shot) -> None:
    """Of those who are the only one of their role."""
    for role in shot.replay.story.roles:
        if len(role.agents) == 1 and len(shot.replay.cast.agents) > 1:
            (agent,) = role.agents
            x, y = shot.middle(agent)
            pen.text((x, y + shot.radius(agent) + 2), role.name, SMALL, INK, "ma", PAPER)


def _bubble(pen: Pen, scene: Scene, at: Point, radius: float, word: int | list[float]) -> None:
    """Above and to the right of the speaker, within the scene."""
    number = str(word + 1) if isinstance(word, int) else ""
    strengths = [] if isinstance(word, int) else word
    wide = text_width(number, SMALL) + 10 if number else BAR * len(strengths) + 6
    x = min(at[0] + 0.7 * radius + 2, scene.left + scene.side - wide)
    y = max(at[1] - radius - BUBBLE - 1, scene.top)
    pen.box((x, y), (wide, BUBBLE), PAPER, INK, rounding=4)
    pen.text((x + wide / 2, y + BUBBLE / 2), number, SMALL, INK, anchor="mm")
    for k, strength in enumerate(strengths):
        height = max(0.5, (BUBBLE - 5) * strength)
        pen.box((x + 3 + k * BAR, y + BUBBLE - 2.5 - height), (BAR - 1.5, height), INK)
