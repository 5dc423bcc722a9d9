"""What is known of JaxMARL's registered worlds without importing JaxMARL, which takes seconds."""

import importlib.util
from collections.abc import Mapping
from typing import Any, NamedTuple

from jmarl.envs.adapters import storm
from jmarl.envs.adapters.brax import missing_extra

BRAX_WORLDS = ("ant_4x2", "halfcheetah_6x1", "hopper_3x1", "humanoid_9|8", "walker2d_2x3")
ROBOTARIUM = "JaxRobotarium_"
MISSPELT = "JaxRobotarium_arctic_transport"  # in JaxMARL's own make()
LEARNED_ENEMY = "LearnedPolicyEnemySMAX"


class Facts(NamedTuple):
    """A world with its own defaults."""

    agents: int
    teams: int
    actions: str
    image: tuple[int, ...] | None = None  # shape of an observation that is one


# None: nobody could look at them; a package of theirs is on no index.
WORLDS: dict[str, Facts | None] = {
    "MPE_simple_v3": Facts(1, 1, "5"),
    "MPE_simple_tag_v3": Facts(4, 2, "5"),
    "MPE_simple_world_comm_v3": Facts(6, 2, "9 continuous"),
    "MPE_simple_spread_v3": Facts(3, 1, "5"),
    "MPE_simple_crypto_v3": Facts(3, 2, "4"),
    "MPE_simple_speaker_listener_v4": Facts(2, 1, "5"),
    "MPE_simple_push_v3": Facts(2, 2, "5"),
    "MPE_simple_adversary_v3": Facts(3, 2, "5"),
    "MPE_simple_reference_v3": Facts(2, 1, "50"),
    "MPE_simple_facmac_v1": Facts(4, 2, "5 continuous"),
    "MPE_simple_facmac_3a_v1": Facts(4, 2, "5 continuous"),
    "MPE_simple_facmac_6a_v1": Facts(8, 2, "5 continuous"),
    "MPE_simple_facmac_9a_v1": Facts(12, 2, "5 continuous"),
    "switch_riddle": Facts(3, 1, "3"),
    "SMAX": Facts(10, 2, "10"),
    "HeuristicEnemySMAX": Facts(5, 1, "10"),
    LEARNED_ENEMY: Facts(5, 1, "10"),
    "ant_4x2": Facts(4, 1, "2 continuous"),
    "halfcheetah_6x1": Facts(6, 1, "1 continuous"),
    "hopper_3x1": Facts(3, 1, "1 continuous"),
    "humanoid_9|8": Facts(2, 1, "9 continuous"),
    "walker2d_2x3": Facts(2, 1, "3 continuous"),
    "storm": Facts(2, 2, "5", (5, 5, 21)),
    "storm_2p": Facts(2, 2, "5", (5, 5, 16)),
    "storm_np": Facts(2, 2, "8", (5, 5, 14)),
    "hanabi": Facts(2, 1, "21"),
    "overcooked": Facts(2, 1, "6", (4, 5, 26)),
    "overcooked_v2": Facts(2, 1, "6", (4, 5, 30)),
    "coin_game": Facts(2, 2, "5"),
    "jaxnav": Facts(2, 1, "2 continuous"),
    "JaxRobotarium_navigation": None,
    "JaxRobotarium_discovery": None,
    "JaxRobotarium_material_transport": None,
    "JaxRobotarium_warehouse": None,
    "JaxRobotarium_arctic_transport": None,
    "JaxRobotarium_foraging": None,
    "JaxRobotarium_rware": None,
    "JaxRobotarium_predator_prey": None,
}


def refusal(name: str, world: str, options: Mapping[str, Any]) -> str | None:
    """Why jmarl does not make the world `name` with these options; None: nothing is known to be in
    the way."""
    if world in BRAX_WORLDS:
        return missing_extra("brax", name)
    if world == MISSPELT:
        return f"{name} cannot be built: JaxMARL 0.2 misspells its name where it makes worlds."
    if world.startswith(ROBOTARIUM) and importlib.util.find_spec("jaxrobotarium") is None:
        return f"{name} needs the package jaxrobotarium, which is not installed and not on PyPI."
    if world == LEARNED_ENEMY and not {"policy", "params"} <= set(options):
        return (
            f"{name} needs the enemies' network: jmarl.make takes it as policy=… and params=…, but "
            "a command cannot."
        )
    if world == storm.TWO_PLAYERS and options.get("num_agents", 2) != 2:
        return f"num_agents={options['num_agents']!r} is refused: {name} is for two agents."
    return None
