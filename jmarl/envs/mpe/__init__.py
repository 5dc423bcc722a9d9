"""Multi-agent particle environments in JAX: twelve scenarios, thousands of worlds in one batch."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from jmarl.envs.mpe.collect_treasure import CollectTreasure
from jmarl.envs.mpe.env import Mpe, Scenario, check_dialect
from jmarl.envs.mpe.options import own_names
from jmarl.envs.mpe.simple import Simple
from jmarl.envs.mpe.simple_adversary import SimpleAdversary
from jmarl.envs.mpe.simple_crypto import SimpleCrypto
from jmarl.envs.mpe.simple_formation import SimpleFormation
from jmarl.envs.mpe.simple_line import SimpleLine
from jmarl.envs.mpe.simple_push import SimplePush
from jmarl.envs.mpe.simple_reference import SimpleReference
from jmarl.envs.mpe.simple_speaker_listener import SimpleSpeakerListener
from jmarl.envs.mpe.simple_spread import SimpleSpread
from jmarl.envs.mpe.simple_tag import SimpleTag
from jmarl.envs.mpe.simple_world_comm import SimpleWorldComm
from jmarl.errors import check_known, unknown

SCENARIOS: dict[str, type[Scenario]] = {}
S = TypeVar("S", bound=Scenario)

__all__ = ["SCENARIOS", "Mpe", "Scenario", "make", "register"]


def register(scenario: type[S]) -> type[S]:
    """Register a scenario class as `mpe/<its name>`; usable as a decorator."""
    SCENARIOS[scenario.name] = scenario
    return scenario


for _scenario in (
    Simple,
    SimpleSpread,
    SimpleReference,
    SimpleSpeakerListener,
    SimpleAdversary,
    SimplePush,
    SimpleTag,
    SimpleCrypto,
    SimpleWorldComm,
    SimpleFormation,
    SimpleLine,
    CollectTreasure,
):
    register(_scenario)


# mpe2's name of an option → jmarl's. What mpe2 calls N differs.
EPISODE_LENGTH = {"max_cycles": "episode_length"}
NUMBER = {"simple_adversary": "num_good"}


def names_of_mpe2(scenario: type[Scenario]) -> dict[str, str]:
    """mpe2's names of the scenario's options, where jmarl's differ."""
    number = NUMBER.get(scenario.name, "num_agents")
    return EPISODE_LENGTH | ({"N": number} if number in _own_options(scenario) else {})


def make(name: str, scenario_name: str, options: Mapping[str, Any]) -> Mpe:
    """Options: those of `Mpe` (actions, episode_length, agent_ids, benchmark_data), `dialect`, and
    the scenario's fields; `N` and `max_cycles` as in mpe2."""
    if scenario_name not in SCENARIOS:
        raise unknown("environment", name, [f"mpe/{known}" for known in SCENARIOS])
    scenario = SCENARIOS[scenario_name]
    options = own_names(name, options, names_of_mpe2(scenario))
    specific = _own_options(scenario)
    common = {field.name for field in fields(Mpe) if field.init} - {"scenario", "apart"}
    check_known(f"option of {name}", options, sorted(specific | common | {"dialect"}))
    check_dialect(scenario, options.get("dialect", "mpe2"))
    chosen = {key: value for key, value in options.items() if key in specific}
    return Mpe(scenario(**chosen), **{k: v for k, v in options.items() if k in common})


def _own_options(scenario: type[Scenario]) -> set[str]:
    return {field.name for field in fields(scenario) if field.init}
