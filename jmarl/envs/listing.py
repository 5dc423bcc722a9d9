"""All worlds that can be named, with what is known of them without making those that are slow."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from jmarl.envs import mpe, probe
from jmarl.envs.adapters import jaxmarl_worlds
from jmarl.envs.adapters.brax import missing_extra
from jmarl.envs.adapters.dm_control import missing_extras
from jmarl.envs.base import Env
from jmarl.envs.spaces import Box, Space
from jmarl.plugins import load_installed
from jmarl.registry import WORLDS

OTHERS = {  # families that are not listed world by world
    "gymnax": "one agent, such as gymnax/Pendulum-v1",
    "playground": "one agent, such as playground/CartpoleBalance",
    "brax": "one agent, such as brax/ant",
    "dm_control": "one agent, such as dm_control/cartpole/balance",
    "gymnasium": "one agent, stepped by Python, such as gymnasium/CartPole-v1",
    "pettingzoo": "stepped by Python, such as pettingzoo/mpe2.simple_spread_v3",
}
# family → why its worlds cannot be made here, if so
MISSING = {
    "playground": partial(missing_extra, "playground"),
    "brax": partial(missing_extra, "brax"),
    "dm_control": missing_extras,
}


class ListedWorld(NamedTuple):
    """A world with its default options, or a family of worlds: `family/…`."""

    name: str
    agents: int | None = None  # None, here and below: not known without making it
    teams: int | None = None
    actions: str | None = None  # how many; of agents with different ones, those of all
    note: str = ""
    refused: str | None = None  # why jmarl does not make it

    def __str__(self) -> str:
        if self.refused:
            return f"refused: {self.refused}"
        counts = [(self.agents, "agent"), (self.teams, "team")]
        known = [f"{n} {what}{'s' * (n != 1)}" for n, what in counts if n is not None]
        actions = [f"{self.actions} actions"] if self.actions else []
        return ", ".join([*known, *actions, *filter(None, [self.note])])


def list_worlds() -> list[ListedWorld]:
    """Built-in worlds, worlds of other libraries, and those that plug-ins have registered."""
    load_installed()
    return [*_particle_worlds(), *_probes(), *_jaxmarl_worlds(), *_families(), *_registered()]


def _particle_worlds() -> Iterator[ListedWorld]:
    for scenario in mpe.SCENARIOS:
        name = f"mpe/{scenario}"
        try:
            yield _made(name, mpe.make(name, scenario, {}))
        except (TypeError, ValueError) as error:  # a plug-in's, without defaults
            yield ListedWorld(name, refused=str(error))


def _probes() -> Iterator[ListedWorld]:
    for game in probe.PROBES:
        yield _made(name := f"probe/{game}", probe.make(name, game, {}))


def _made(name: str, env: Env) -> ListedWorld:
    spec = env.spec
    actions = described_actions(spec.action_space)
    return ListedWorld(name, spec.num_agents, len(spec.teams), actions)


def described_actions(space: Space) -> str:
    """`5`, `5 × 10`, `2 continuous`."""
    if isinstance(space, Box):
        return f"{space.size} continuous"
    return " × ".join(map(str, space.heads))


def _jaxmarl_worlds() -> Iterator[ListedWorld]:
    for world, facts in jaxmarl_worlds.WORLDS.items():
        listed = ListedWorld(name := f"jaxmarl/{world}")
        if facts is not None:
            image = f"images {' × '.join(map(str, facts.image))}" if facts.image else ""
            listed = ListedWorld(name, facts.agents, facts.teams, facts.actions, image)
        yield listed._replace(refused=jaxmarl_worlds.refusal(name, world, {}))


def _families() -> Iterator[ListedWorld]:
    for family, note in OTHERS.items():
        name, missing = f"{family}/…", MISSING.get(family)
        yield ListedWorld(name, note=note, refused=missing and missing(name))


def _registered() -> Iterator[ListedWorld]:
    """Their factories may be slow, so nothing is made."""
    for name in WORLDS:
        yield ListedWorld(name, note="registered by a plug-in")
