"""Draws one state of one world: the field, landmarks, agents, their actions and messages."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jmarl.replays.canvas import Canvas, Point, blend, text_width
from jmarl.replays.narration import target_of
from jmarl.replays.replay import Replay

PAPER, FIELD, RULE, INK = "#ffffff", "#f1f3f5", "#c9ced6", "#1f2937"
GOAL, CAUGHT = "#e6a700", "#d4002a"
SMALL = 11  # text size within the scene
HEADING = 0.12  # seconds of motion that an agent's velocity line covers
REST = 1e-3  # speeds below this count as rest
RING = 4  # pixels between a landmark and its ring
TRAIL = 8  # number of previous states in an agent's trail
PUSH = 0.62  # half the length of the arrow inside an agent, relative to its radius
STILL = 0.05  # weaker pushes are not drawn
CARGO = 0.75  # radius of what an agent carries, relative to its own
BAR, BUBBLE = 4, 15  # pixels: the width of a bar in a bubble, the height of a bubble


class Scene(NamedTuple):
    """The position of a world's square ±reach in the picture; y points up."""

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
    """One state of one episode, and the scene to draw it in."""

    replay: Replay
    episode: int
    state: int
    scene: Scene
    caught: tuple[int, ...] = ()  # prey that predators touch

    def pos(self, agent: int) -> np.ndarray:
        return self.replay.pos[self.episode, self.state, agent]

    def middle(self, agent: int) -> Point:
        return self.scene.at(self.pos(agent))

    def radius(self, agent: int) -> float:
        return self.scene.length(self.replay.entities.agents[agent].radius)


def colours(replay: Replay) -> list[str]:
    """The colours of a scene, without those of smooth edges."""
    of_legend = [entry.colour for entry in (*replay.legend.roles, *replay.legend.things)]
    return [PAPER, INK, FIELD, RULE, GOAL, CAUGHT, *of_legend]


def ring_colour(replay: Replay, agents: Sequence[int]) -> str:
    """If agents have different goals, the colour of the agents that must reach this one."""
    different = len(replay.legend.targets) > 1
    return replay.legend.role_of(agents[0]).colour if different else GOAL


def draw_scene(canvas: Canvas, shot: Shot) -> None:
    """Draw from bottom to top; small things and messages come last."""
    scene, agents = shot.scene, range(len(shot.replay.entities.agents))
    canvas.box((scene.left, scene.top), (scene.side, scene.side), FIELD)
    length = scene.length(2)
    canvas.box(scene.at(np.array([-1.0, 1.0])), (length, length), PAPER, RULE)
    _landmarks(canvas, shot)
    for agent in agents:
        _trail(canvas, shot, agent)
    for agent in agents:
        _agent(canvas, shot, agent)
    _outlines(canvas, shot)
    _rings(canvas, shot)
    for agent in shot.caught:
        canvas.disc(shot.middle(agent), shot.radius(agent) + RING, None, CAUGHT, 2.5)
    _names(canvas, shot)
    for speaker, agent in enumerate(shot.replay.entities.speakers):
        word = shot.replay.word(shot.episode, shot.state, speaker)
        if word is not None:
            _bubble(canvas, scene, shot.middle(agent), shot.radius(agent), word)


def _landmarks(canvas: Canvas, shot: Shot) -> None:
    replay, scene = shot.replay, shot.scene
    places = replay.places(shot.episode, shot.state)
    for thing in replay.legend.things:  # in drawing order
        for i, landmark in enumerate(replay.entities.landmarks):
            colour = replay.landmark_colour(shot.episode, shot.state, i)
            if landmark.kind == thing.kind and colour is not None:
                edge = blend(colour, INK, 0.25)
                canvas.disc(scene.at(places[i]), scene.length(landmark.radius), colour, edge)


def _trail(canvas: Canvas, shot: Shot, agent: int) -> None:
    first = max(0, shot.state - TRAIL)
    before = shot.replay.pos[shot.episode, first : shot.state + 1, agent]
    faint = blend(shot.replay.legend.role_of(agent).colour, PAPER, 0.5)
    for start, end in itertools.pairwise(before):
        canvas.line(shot.scene.at(start), shot.scene.at(end), faint, 1.2)


def _agent(canvas: Canvas, shot: Shot, agent: int) -> None:
    """A disc; inside it an arrow in the direction of the agent's next push; from its edge a line
    proportional to its velocity."""
    replay, pos = shot.replay, shot.pos(agent)
    vel = replay.vel[shot.episode, shot.state, agent]
    speed = float(np.linalg.norm(vel))
    colour = replay.legend.role_of(agent).colour
    canvas.disc(shot.middle(agent), shot.radius(agent), colour, PAPER, 0.8)
    if cargo := replay.carried_colour(shot.episode, shot.state, agent):
        canvas.disc(shot.middle(agent), CARGO * shot.radius(agent), cargo, INK, 0.8)
    if speed > REST:
        edge = pos + vel / speed * replay.entities.agents[agent].radius
        canvas.line(shot.scene.at(edge), shot.scene.at(edge + vel * HEADING), INK, 1.6)
    if shot.state < replay.steps:
        move = replay.move[shot.episode, shot.state, agent]
        canvas.shape(arrow(shot.middle(agent), move, shot.radius(agent)), PAPER)


def arrow(middle: Point, move: np.ndarray, radius: float) -> list[Point]:
    """The corners of an arrow through `middle`, its length proportional to the push; none without a
    push. y points up in the world and down in the picture."""
    strength = float(np.linalg.norm(move))
    if strength < STILL:
        return []
    along = np.array([move[0], -move[1]]) / strength
    across = np.array([-along[1], along[0]])
    length, width = PUSH * radius * min(1.0, max(0.4, strength)), PUSH * radius
    outline = [(-1, 0.16), (0.1, 0.16), (0.1, 0.6), (1, 0), (0.1, -0.6), (0.1, -0.16), (-1, -0.16)]
    corners = (np.array(middle) + a * length * along + b * width * across for a, b in outline)
    return [(float(x), float(y)) for x, y in corners]


def _outlines(canvas: Canvas, shot: Shot) -> None:
    """Outlines of small landmarks, which agents may cover, and labels of landmarks."""
    replay, letters = shot.replay, shot.replay.legend.letters
    largest = replay.entities.radius.max()
    places = replay.places(shot.episode, shot.state)
    for i, landmark in enumerate(replay.entities.landmarks):
        if replay.landmark_colour(shot.episode, shot.state, i) is None:
            continue
        x, y = shot.scene.at(places[i])
        radius = shot.scene.length(landmark.radius)
        if landmark.radius < largest:
            canvas.disc((x, y), radius + 0.5, None, PAPER, 1)
        if i < len(letters):
            canvas.text((x, y - radius - RING), letters[i], SMALL, INK, "md", PAPER)


def _rings(canvas: Canvas, shot: Shot) -> None:
    replay = shot.replay
    reached: list[int] = []
    for target in replay.legend.targets:
        i = target_of(replay, shot.episode, target.goal)
        at = shot.scene.at(replay.landmarks[shot.episode, i])
        inner = shot.scene.length(replay.entities.landmarks[i].radius)
        colour = ring_colour(replay, target.agents)
        canvas.disc(at, inner + RING * (1 + reached.count(i)), None, colour, 2.5)
        reached.append(i)


def _names(canvas: Canvas, shot: Shot) -> None:
    """Label agents that are the only one of their role."""
    for role in shot.replay.legend.roles:
        if len(role.agents) == 1 and len(shot.replay.entities.agents) > 1:
            (agent,) = role.agents
            x, y = shot.middle(agent)
            canvas.text((x, y + shot.radius(agent) + 2), role.name, SMALL, INK, "ma", PAPER)


def _bubble(
    canvas: Canvas, scene: Scene, at: Point, radius: float, word: int | list[float]
) -> None:
    """A speech bubble above and to the right of the speaker, inside the scene."""
    number = str(word + 1) if isinstance(word, int) else ""
    strengths = [] if isinstance(word, int) else word
    width = text_width(number, SMALL) + 10 if number else BAR * len(strengths) + 6
    x = min(at[0] + 0.7 * radius + 2, scene.left + scene.side - width)
    y = max(at[1] - radius - BUBBLE - 1, scene.top)
    canvas.box((x, y), (width, BUBBLE), PAPER, INK, rounding=4)
    canvas.text((x + width / 2, y + BUBBLE / 2), number, SMALL, INK, anchor="mm")
    for k, strength in enumerate(strengths):
        height = max(0.5, (BUBBLE - 5) * strength)
        canvas.box((x + 3 + k * BAR, y + BUBBLE - 2.5 - height), (BAR - 1.5, height), INK)
