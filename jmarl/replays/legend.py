"""Legends of the particle worlds: their aims, roles and colours, for people new to them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jmarl.envs.mpe.world import Entities
from jmarl.errors import ConfigError

# Okabe & Ito 2008: distinguishable for colour-blind readers
BLUE, ORANGE, PURPLE, SKY = "#0072b2", "#d55e00", "#b0559a", "#3f9fd8"
GREY, SLATE, GREEN, PALE_GREEN = "#8a8f98", "#4b5563", "#009e73", "#a9d8b8"
OCHRE = "#9a7b00"


class Role(NamedTuple):
    """Agents that are drawn in the same way."""

    name: str
    colour: str
    aim: str
    agents: tuple[int, ...]


class Thing(NamedTuple):
    """Landmarks that are drawn in the same way."""

    kind: str
    colour: str
    about: str


class Target(NamedTuple):
    """A landmark that some agents must reach; its index is entry `goal` of `World.goal`."""

    goal: int
    agents: tuple[int, ...]
    about: str


class ScenarioLegend(NamedTuple):
    aim: str
    roles: tuple[Role, ...]
    things: tuple[Thing, ...]
    targets: tuple[Target, ...] = ()
    letters: tuple[str, ...] = ()  # labels of landmarks that differ from each other

    def role_of(self, agent: int) -> Role:
        return next(role for role in self.roles if agent in role.agents)

    def thing(self, kind: str) -> Thing:
        return next(thing for thing in self.things if thing.kind == kind)


def legend_of(scenario: Any) -> ScenarioLegend:
    """The scenario's own `legend`, that of a built-in scenario, or a general one."""
    if (own := getattr(scenario, "legend", None)) is not None:
        return _checked(own, scenario)
    make_legend = LEGENDS.get(scenario.name, _any_world)
    return make_legend(scenario.entities)


def _checked(legend: Any, scenario: Any) -> ScenarioLegend:
    """Refuse a legend that leaves an agent or a landmark without a colour."""
    where = f"the legend of {scenario.name!r}"
    if not isinstance(legend, ScenarioLegend):
        raise ConfigError(f"{where} is a {type(legend).__name__}, not a ScenarioLegend.")
    of_agents = {agent for role in legend.roles for agent in role.agents}
    of_landmarks = {thing.kind for thing in legend.things}
    for i, agent in enumerate(scenario.entities.agents):
        if i not in of_agents:
            raise ConfigError(f"{where} has no role for agent {i}, {agent.name!r}.")
    for landmark in scenario.entities.landmarks:
        if landmark.kind not in of_landmarks:
            raise ConfigError(f"{where} has no thing of the kind {landmark.kind!r}.")
    return legend


def _team(entities: Entities, name: str) -> tuple[int, ...]:
    return tuple(i for i, agent in enumerate(entities.agents) if agent.team == name)


def _everybody(entities: Entities) -> tuple[int, ...]:
    return tuple(range(len(entities.agents)))


def _any_world(entities: Entities) -> ScenarioLegend:
    colours = (BLUE, ORANGE, PURPLE, SKY)
    teams = list(dict.fromkeys(agent.team for agent in entities.agents))
    kinds = dict.fromkeys(landmark.kind for landmark in entities.landmarks)
    looks = {"obstacle": SLATE, "food": GREEN, "forest": PALE_GREEN}
    return ScenarioLegend(
        aim="Agents move among landmarks.",
        roles=tuple(
            Role(team, colours[i % len(colours)], "a team", _team(entities, team))
            for i, team in enumerate(teams)
        ),
        things=tuple(Thing(kind, looks.get(kind, GREY), "stays in place") for kind in kinds),
    )


def _simple(entities: Entities) -> ScenarioLegend:
    return ScenarioLegend(
        aim="One agent learns to go to a landmark.",
        roles=(Role("agent", BLUE, "is rewarded for being near the landmark", (0,)),),
        things=(Thing("landmark", GREY, "the goal"),),
    )


def _spread(entities: Entities) -> ScenarioLegend:
    aim = "divide the landmarks among themselves"
    return ScenarioLegend(
        aim="Agents learn to cover all landmarks, one each, without bumping into each other.",
        roles=(Role("agent", BLUE, aim, _everybody(entities)),),
        things=(Thing("landmark", GREY, "must have an agent near it"),),
    )


def _reference(entities: Entities) -> ScenarioLegend:
    return ScenarioLegend(
        aim="Each agent knows only the other's goal and must communicate it, in words whose "
        "meaning they have to learn.",
        roles=(
            Role("agent_0", BLUE, "knows the goal of agent_1", (0,)),
            Role("agent_1", ORANGE, "knows the goal of agent_0", (1,)),
        ),
        things=(Thing("landmark", GREY, "one of three places (A, B, C)"),),
        targets=(
            Target(1, (0,), "where agent_0 must go"),
            Target(0, (1,), "where agent_1 must go"),
        ),
        letters=tuple("ABC"),
    )


def _speaker_listener(entities: Entities) -> ScenarioLegend:
    return ScenarioLegend(
        aim="The speaker knows the goal but cannot move; the listener can move but does not know "
        "the goal. They have to learn what words mean.",
        roles=(
            Role("speaker", ORANGE, "knows the goal, cannot move", (0,)),
            Role("listener", BLUE, "hears the speaker, moves", (1,)),
        ),
        things=(Thing("landmark", GREY, "one of three places (A, B, C)"),),
        targets=(Target(0, (1,), "where the listener must go"),),
        letters=tuple("ABC"),
    )


def _adversary(entities: Entities) -> ScenarioLegend:
    good = _team(entities, "good")
    return ScenarioLegend(
        aim="The good agents know which landmark is the goal: one should be at it, and the others "
        "mislead the adversary, which has to guess it from their behaviour.",
        roles=(
            Role("adversary", ORANGE, "wants to be at the goal but does not know it", (0,)),
            Role("good", BLUE, "want one agent at the goal and the adversary far away", good),
        ),
        things=(Thing("landmark", GREY, "may be the goal"),),
        targets=(Target(0, good, "the goal, known to the good agents only"),),
    )


def _push(entities: Entities) -> ScenarioLegend:
    return ScenarioLegend(
        aim="The good agent wants to be at its goal; the adversary, which does not know the goal, "
        "pushes it away and takes its place.",
        roles=(
            Role("adversary", ORANGE, "keeps the good agent from the goal", (0,)),
            Role("good", BLUE, "wants to be at the goal", (1,)),
        ),
        things=(Thing("landmark", GREY, "one of two places (A, B)"),),
        targets=(Target(0, (1,), "the goal, known to the good agent only"),),
        letters=tuple("AB"),
    )


def _tag(entities: Entities) -> ScenarioLegend:
    return ScenarioLegend(
        aim="Several slow predators hunt faster prey. They are rewarded for every step in which "
        "they touch it. Prey must stay inside the square.",
        roles=(
            Role("predator", ORANGE, "want to touch the prey", _team(entities, "adversary")),
            Role("prey", BLUE, "want to escape", _team(entities, "good")),
        ),
        things=(Thing("obstacle", SLATE, "blocks all agents"),) * bool(entities.landmarks),
    )


def _world_comm(entities: Entities) -> ScenarioLegend:
    hunters = _team(entities, "adversary")
    kinds = {landmark.kind for landmark in entities.landmarks}
    things = (
        Thing("forest", PALE_GREEN, "hides agents inside from those outside, except the leader"),
        Thing("obstacle", SLATE, "blocks all agents"),
        Thing("food", GREEN, "rewards the prey that touch it"),
    )
    roles = (
        Role("leader", PURPLE, "a hunter that sees all and speaks to the hunters", hunters[:1]),
        Role("hunter", ORANGE, "want to touch the prey", hunters[1:]),
        Role("prey", BLUE, "want food, and to escape", _team(entities, "good")),
    )
    return ScenarioLegend(
        aim="Hunters, guided by a leader, chase prey that look for food and hide in forests.",
        roles=tuple(role for role in roles if role.agents),
        things=tuple(thing for thing in things if thing.kind in kinds),
    )


def _crypto(entities: Entities) -> ScenarioLegend:
    return ScenarioLegend(
        aim="Alice sends Bob a secret (1 or 2) as a word that Eve hears too; only Alice and Bob "
        "have the key. Nobody moves; Bob and Eve are scored by their guesses of the secret.",
        roles=(
            Role("Eve", ORANGE, "guesses the secret without the key", (0,)),
            Role("Bob", BLUE, "guesses the secret with the key", (1,)),
            Role("Alice", SKY, "knows the secret and the key", (2,)),
        ),
        things=(Thing("landmark", GREY, "represents a secret"),),
        targets=(Target(0, (), "the secret of this episode"),),
        letters=("1", "2"),
    )


def _formation(entities: Entities) -> ScenarioLegend:
    return ScenarioLegend(
        aim="Agents learn to stand evenly on a circle around the landmark.",
        roles=(Role("agent", BLUE, "takes a place on the circle", _everybody(entities)),),
        things=(Thing("landmark", GREY, "the middle of the circle, whose radius is 0.5"),),
    )


def _line(entities: Entities) -> ScenarioLegend:
    return ScenarioLegend(
        aim="Agents learn to stand evenly on the line between the landmarks.",
        roles=(Role("agent", BLUE, "takes a place on the line", _everybody(entities)),),
        things=(Thing("landmark", GREY, "an end of the line"),),
    )


def _treasure(entities: Entities) -> ScenarioLegend:
    names = [agent.name for agent in entities.agents]
    colours = (ORANGE, BLUE, GREEN, PURPLE, SKY, OCHRE)
    deposits = [i for i in _everybody(entities) if names[i].startswith("deposit")]
    collectors = tuple(i for i in _everybody(entities) if i not in deposits)
    return ScenarioLegend(
        aim="Collectors pick up treasures, one at a time, and carry each to the deposit of its "
        "colour. New treasures appear.",
        roles=(
            Role("collector", GREY, "carries treasures, avoids other collectors", collectors),
            *(
                Role(names[i], colours[k], "takes treasures of its colour", (i,))
                for k, i in enumerate(deposits)
            ),
        ),
        things=(Thing("treasure", SLATE, "has the colour of its deposit"),),
    )


LEGENDS: dict[str, Callable[[Entities], ScenarioLegend]] = {
    "simple": _simple,
    "simple_spread": _spread,
    "simple_reference": _reference,
    "simple_speaker_listener": _speaker_listener,
    "simple_adversary": _adversary,
    "simple_push": _push,
    "simple_tag": _tag,
    "simple_world_comm": _world_comm,
    "simple_crypto": _crypto,
    "simple_formation": _formation,
    "simple_line": _line,
    "collect_treasure": _treasure,
}
