"""What `--list-worlds` says is what the worlds are."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jmarl
from jmarl.commands import train
from jmarl.envs import mpe
from jmarl.envs.adapters.jaxmarl import import_jaxmarl
from jmarl.envs.adapters.jaxmarl_worlds import WORLDS, refusal
from jmarl.envs.listing import ListedWorld, described_actions
from jmarl.envs.mpe.simple import Simple
from jmarl.errors import ConfigError
from jmarl.registry import FAMILIES

ROOT = Path(__file__).parents[2]
LISTED = {world.name: world for world in jmarl.list_worlds()}
JAXMARL = [name for name in LISTED if name.startswith("jaxmarl/")]
MADE = [name for name in JAXMARL if not LISTED[name].refused]
REFUSED = [name for name in JAXMARL if LISTED[name].refused]
SLOW = ("jaxmarl/MPE_simple_facmac_6a_v1", "jaxmarl/MPE_simple_facmac_9a_v1")  # like the others


def test_every_world_that_jaxmarl_has_registered_is_listed():
    registered = import_jaxmarl().registered_envs
    assert [f"jaxmarl/{world}" for world in registered] == JAXMARL
    assert list(WORLDS) == registered


def test_every_family_is_listed():
    assert {name.partition("/")[0] for name in LISTED} == set(FAMILIES)


@pytest.mark.parametrize("name", sorted(set(MADE) - set(SLOW)))
@pytest.mark.filterwarnings("ignore")  # JaxNav's, of its own defaults
def test_a_world_is_as_it_is_listed(name, foreign):
    spec = jmarl.make(name).spec
    image = f"images {' × '.join(map(str, spec.obs_shape))}" if spec.obs_shape else ""
    actions = described_actions(spec.action_space)
    assert LISTED[name] == ListedWorld(name, spec.num_agents, len(spec.teams), actions, image)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_world_is_refused_for_the_listed_reason(name):
    with pytest.raises(ConfigError, match=f"^{re.escape(LISTED[name].refused)}$"):
        jmarl.make(name)


def test_jaxmarl_itself_cannot_make_the_world_whose_name_it_misspells(monkeypatch):
    jaxmarl = import_jaxmarl()
    monkeypatch.setattr(sys.modules["jaxmarl.registration"], "SUBMODULE_ENVIRONMENTS", True)
    with pytest.raises(UnboundLocalError):
        jaxmarl.make("JaxRobotarium_arctic_transport")


def test_a_package_that_is_installed_is_not_asked_for(monkeypatch):
    name, world = "jaxmarl/JaxRobotarium_rware", "JaxRobotarium_rware"
    assert "jaxrobotarium" in refusal(name, world, {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert refusal(name, world, {}) is None
    assert refusal("jaxmarl/ant_4x2", "ant_4x2", {}) is None


def test_enemies_that_have_learned_are_given_from_python():
    world = "LearnedPolicyEnemySMAX"
    assert refusal(f"jaxmarl/{world}", world, {"policy": 1, "params": 2}) is None


def test_lines_say_what_is_known():
    assert str(LISTED["mpe/simple_tag"]) == "4 agents, 2 teams, 5 actions"
    assert str(LISTED["mpe/simple"]) == "1 agent, 1 team, 5 actions"
    assert str(LISTED["mpe/simple_reference"]) == "2 agents, 1 team, 5 × 10 actions"
    line = "2 agents, 1 team, 6 actions, images 4 × 5 × 30"
    assert str(LISTED["jaxmarl/overcooked_v2"]) == line


@pytest.mark.usefixtures("registry")
def test_the_command_lists_the_worlds_of_plug_ins_too(called, tmp_path):
    plugin = tmp_path / "my_worlds.py"
    plugin.write_text("import jmarl\njmarl.register_env('my/world', lambda: None)\n")
    code, said = called(train, "--list-worlds", "--plugin", plugin)
    assert code == 0
    lines = dict(re.split(r" {2,}", line) for line in said.splitlines())
    assert lines["my/world"] == "registered by a plug-in"
    assert {name: str(world) for name, world in LISTED.items()} == {
        name: line for name, line in lines.items() if name != "my/world"
    }


def test_the_command_takes_no_other_option(called):
    code, said = called(train, "--list-worlds", "--env", "mpe/simple")
    assert code == 2
    assert "--list-worlds goes with no option but --plugin" in said


@pytest.mark.usefixtures("registry")
def test_a_scenario_that_needs_options_is_listed_with_the_reason():
    class Mine(Simple):
        def __init__(self):
            raise ConfigError("landmarks are missing.")

    mpe.SCENARIOS["mine"] = Mine
    listed = {world.name: world for world in jmarl.list_worlds()}
    assert str(listed["mpe/mine"]) == "refused: landmarks are missing."


def test_listing_does_not_import_the_libraries():
    listing = "import jmarl, sys; jmarl.list_worlds(); print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, encoding="utf-8")
    assert "jmarl.envs.listing" in done.stdout
    assert not {"jaxmarl", "gymnax", "gymnasium", "pettingzoo"} & set(done.stdout.split())


def test_the_table_of_the_documentation_says_the_same(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # no extra is there
    text = (ROOT / "docs/worlds.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `jaxmarl/([^`]+)` \| (.*?) \| (.*?) \| (.*?) \|$", text, re.M)
    assert [world.replace("\\|", "|") for world, *_ in rows] == list(WORLDS)
    for world, agents, actions, result in rows:
        facts = WORLDS[world.replace("\\|", "|")]
        teams = "" if facts is None or facts.teams == 1 else f" in {facts.teams} teams"
        expected = ("", "") if facts is None else (f"{facts.agents}{teams}", facts.actions)
        assert (agents.strip(), actions.strip()) == expected, world
        own = world.replace("\\|", "|")
        refused = refusal(f"jaxmarl/{own}", own, {}) is not None
        assert ("refused" in result) == refused, world
