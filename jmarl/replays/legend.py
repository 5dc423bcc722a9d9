"""What each particle world is about, for people who have never seen one: words and colours."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jmarl.envs.mpe.world import Cast

# Okabe & Ito 2008: apart for the colour-blind too
BLUE, ORANGE, PURPLE, SKY = "#0072b2", "#d55e00", "#b0559a", "#3f9fd8"
GREY, SLATE, GREEN, PALE_GREEN = "#8a8f98", "#4b5563", "#009e73", "#a9d8b8"


class Role(NamedTuple):
    """Agents that are drawn alike."""

    name: str
    colour: str
    aim: str
    agents: tuple[int, ...]


class Thing(NamedTuple):
    """Landmarks that are drawn alike."""

    kind: str
    colour: str
    about: str


class Target(NamedTuple):
    """A landmark that somebody must reach: entry `goal` of `World.goal` says which."""

    goal: int
    agents: tuple[int, ...]
    about: str


class Story(NamedTuple):
    aim: str
    roles: tuple[Role, ...]
    things: tuple[Thing, ...]
    targets: tuple[Target, ...] = ()
    letters: tuple[str, ...] = ()  # of landmarks that differ from each other; else none

    def role_of(self, agent: int) -> Role:
        return next(role for role in self.roles if agent in role.agents)

    def thing(self, kind: str) -> Thing:
        return next(thing for thing in self.things if thing.kind == kind)


def story_of(scenario: Any) -> Story:
    """Of one of the nine, or in general words of a scenario somebody added."""
    tell = STORIES.get(scenario.name, _any_world)
    return tell(scenario.cast)


def _team(cast: Cast, name: str) -> tuple[int, ...]:
    return tuple(i for i, agent in enumerate(cast.agents) if agent.team == name)


def _everybody(cast: Cast) -> tuple[int, ...]:
    return tuple(range(len(cast.agents)))


def _any_world(cast: Cast) -> Story:
    colours = (BLUE, ORANGE, PURPLE, SKY)
    teams = list(dict.fromkeys(agent.team for agent in cast.agents))
    kinds = dict.fromkeys(landmark.kind for landmark in cast.landmarks)
    looks = {"obstacle": SLATE, "food": GREEN, "forest": PALE_GREEN}
    return Story(
        aim="Agents move among landmarks.",
        roles=tuple(
            Role(team, colours[i % len(colours)], "a team", _team(cast, team))
            for i, team in enumerate(teams)
        ),
        things=tuple(Thing(kind, looks.get(kind, GREY), "stays in place") for kind in kinds),
    )


def _simple(cast: Cast) -> Story:
    return Story(
        aim="One agent learns to go to a landmark.",
        roles=(Role("agent", BLUE, "is paid for being near the landmark", (0,)),),
        things=(Thing("landmark", GREY, "the place to be"),),
    )


def _spread(cast: Cast) -> Story:
    aim = "share the landmarks out among themselves"
    return Story(
        aim="Agents learn to cover all landmarks, one each, without bumping into each other.",
        roles=(Role("agent", BLUE, aim, _everybody(cast)),),
        things=(Thing("landmark", GREY, "must have an agent near it"),),
    )


def _reference(cast: Cast) -> Story:
    return Story(
        aim="Each agent knows only where the other one must go, and has to tell it in words that "
        "mean nothing until they agree on them.",
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


def _speaker_listener(cast: Cast) -> Story:
    return Story(
        aim="The speaker knows the goal but cannot move; the listener can move but must be told, "
        "in words that mean nothing until they agree on them.",
        roles=(
            Role("speaker", ORANGE, "sees the goal, stays where it is", (0,)),
            Role("listener", BLUE, "hears a word, goes", (1,)),
        ),
        things=(Thing("landmark", GREY, "one of three places (A, B, C)"),),
        targets=(Target(0, (1,), "where the listener must go"),),
        letters=tuple("ABC"),
    )


def _adversary(cast: Cast) -> Story:
    good = _team(cast, "good")
    return Story(
        aim="The good know which landmark is the goal: one should be on it, and the rest mislead "
        "the adversary, who has to guess it from what they do.",
        roles=(
            Role("adversary", ORANGE, "wants to be at the goal, does not know it", (0,)),
            Role("good", BLUE, "want one of them at the goal, the adversary far", good),
        ),
        things=(Thing("landmark", GREY, "may be the goal"),),
        targets=(Target(0, good, "the goal, known to the good only"),),
    )


def _push(cast: Cast) -> Story:
    return Story(
        aim="The good agent wants to be at its goal; the adversary, who does not know which it is, "
        "pushes it away and takes its place.",
        roles=(
            Role("adversary", ORANGE, "keeps the good agent from the goal", (0,)),
            Role("good", BLUE, "wants to be at the goal", (1,)),
        ),
        things=(Thing("landmark", GREY, "one of two places (A, B)"),),
        targets=(Target(0, (1,), "the goal, known to the good agent only"),),
        letters=tuple("AB"),
    )


def _tag(cast: Cast) -> Story:
    return Story(
        aim="Predators are slow but many; they hunt quick prey. Every touch scores for them. Prey "
        "must stay inside the square.",
        roles=(
            Role("predator", ORANGE, "want to touch the prey", _team(cast, "adversary")),
            Role("prey", BLUE, "want to escape", _team(cast, "good")),
        ),
        things=(Thing("obstacle", SLATE, "nobody passes through"),) * bool(cast.landmarks),
    )


def _world_comm(cast: Cast) -> Story:
    hunters = _team(cast, "adversary")
    kinds = {landmark.kind for landmark in cast.landmarks}
    things = (
        Thing("forest", PALE_GREEN, "hides those in it from those outside, not from the leader"),
        Thing("obstacle", SLATE, "nobody passes through"),
        Thing("food", GREEN, "pays the prey that touch it"),
    )
    roles = (
        Role("leader", PURPLE, "a hunter who sees all and calls to the hunters", hunters[:1]),
        Role("hunter", ORANGE, "want to touch the prey", hunters[1:]),
        Role("prey", BLUE, "want food, and to escape", _team(cast, "good")),
    )
    return Story(
        aim="Hunters, told by a leader where to go, chase prey that look for food and hide in "
        "forests.",
        roles=tuple(role for role in roles if role.agents),
        things=tuple(thing for thing in things if thing.kind in kinds),
    )


def _crypto(cast: Cast) -> Story:
    return Story(
        aim="Alice tells Bob a secret (1 or 2) in a word that Eve hears too; only Alice and Bob "
        "have the key. Nobody moves: what counts is what Bob and Eve take the secret to be.",
        roles=(
            Role("Eve", ORANGE, "guesses the secret without the key", (0,)),
            Role("Bob", BLUE, "guesses the secret with the key", (1,)),
            Role("Alice", SKY, "knows the secret and the key", (2,)),
        ),
        things=(Thing("landmark", GREY, "stands for a secret"),),
        targets=(Target(0, (), "the secret of this episode"),),
        letters=("1", "2"),
    )


STORIES: dict[str, Callable[[Cast], Story]] = {
    "simple": _simple,
    "simple_spread": _spread,
    "simple_reference": _reference,
    "simple_speaker_listener": _speaker_listener,
    "simple_adversary": _adversary,
    "simple_push": _push,
    "simple_tag": _tag,
    "simple_world_comm": _world_comm,
    "simple_crypto": _crypto,
}
