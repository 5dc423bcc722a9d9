"""Multi-agent particle environments, native: nine scenarios, thousands of worlds at once."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from jmarl.envs.mpe.env import Mpe, Scenario, refuse_dialect
from jmarl.envs.mpe.simple import Simple
from jmarl.envs.mpe.simple_adversary import SimpleAdversary
from jmarl.envs.mpe.simple_crypto import SimpleCrypto
from jmarl.envs.mpe.simple_push import SimplePush
from jmarl.envs.mpe.simple_reference import SimpleReference
from jmarl.envs.mpe.simple_speaker_listener import SimpleSpeakerListener
from jmarl.envs.mpe.simple_spread import SimpleSpread
from jmarl.envs.mpe.simple_tag import SimpleTag
from jmarl.envs.mpe.simple_world_comm import SimpleWorldComm
from jmarl.errors import check_known, unknown

SCENARIOS: dict[str, type[Any]] = {}

__all__ = ["SCENARIOS", "Mpe", "Scenario", "make", "register"]


def register(scenario: type[Any]) -> type[Any]:
    """Make a scenario class known as `mpe/<its name>`. Usable as a decorator on your own."""
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
):
    register(_scenario)


def make(name: str, scenario_name: str, options: Mapping[str, Any]) -> Mpe:
    """Options are those of `Mpe` (actions, episode_length, agent_ids), the dialect, and the
    fields of the scenario."""
    if scenario_name not in SCENARIOS:
        raise unknown("environment", name, [f"mpe/{known}" for known in SCENARIOS])
    scenario = SCENARIOS[scenario_name]
    own = {field.name for field in fields(scenario)}
    common = {field.name for field in fields(Mpe)} - {"scenario"}
    check_known(f"option of {name}", options, sorted(own | common | {"dialect"}))
    refuse_dialect(scenario, options.get("dialect", "mpe2"))
    chosen = {key: value for key, value in options.items() if key in own}
    return Mpe(scenario(**chosen), **{k: v for k, v in options.items() if k in common})
