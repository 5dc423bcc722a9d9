"""Plug-ins: imported before anything is looked up, recorded with a run, and what is wrong with one
is said in one sentence."""

import hashlib
import json
import re
import sys
import warnings
from importlib import metadata

import numpy as np
import pytest
import yaml

import jmarl
from jmarl import plugins
from jmarl.commands import evaluate, sweep, train
from jmarl.config.train_config import build
from jmarl.errors import ConfigError
from jmarl.registry import ALGORITHMS, WORLDS
from jmarl.sweeps.plan import plan

pytestmark = pytest.mark.usefixtures("registry")

ALGORITHM = """import jmarl
class Options(jmarl.Section):
    coef: float = jmarl.option(0.5, "Weight.", traced=True, ge=0)
jmarl.register_algorithm("mine", like="ippo", options=Options)
"""
# a copy of a probe: agents are paid 1 in each step; `HOOK` runs in every step
WORLD = """import dataclasses
import jax
import jmarl
from jmarl.envs.batched import Batched
from jmarl.envs.probe import Probe


@dataclasses.dataclass(frozen=True)
class Mine(Probe):
    bonus: float = 0.0

    def step(self, key, state, action):
        state, result = super().step(key, state, action)
        reward = result.reward + self.bonus
        HOOK
        return state, result._replace(reward=reward)


jmarl.register_env("mine/world", lambda bonus=0.0: Batched(Mine("constant", bonus=bonus)))
"""
TINY = "--env mine/world --algorithm ippo --net.hidden 4 --num-envs 4 --rollout-length 4"
TINY += " --ppo.num-minibatches 1 --total-updates 4 --eval-every 2 --eval-episodes 4 --log-every 1"
TINY = [*TINY.split(), "--no-gif", "--no-tensorboard", "--no-compilation-cache", "--devices", "1"]


def world(hook="pass"):
    return WORLD.replace("HOOK", hook)


@pytest.fixture
def written(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_file_is_imported_before_the_command_line_is_read(written, called, monkeypatch):
    path = written("first_plugin.py", ALGORITHM)
    config = train.parse(["--plugin", str(path), "--algorithm", "mine", "--mine.coef", "0.25"])
    assert config.mine.coef == 0.25
    assert config.plugins == (str(path),)
    monkeypatch.setenv("COLUMNS", "120")
    code, said = called(train, f"--plugin={path}", "--algorithm", "mine", "--help")
    assert code == 0
    assert "--mine.coef" in said


def test_a_preset_names_plugins_from_where_it_lies(written, monkeypatch, tmp_path):
    path = written("second_plugin.py", ALGORITHM)
    text = yaml.safe_dump({"algorithm": "mine", "plugins": [path.name], "mine": {"coef": 0.75}})
    preset = written("preset.yaml", text)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = train.parse([str(preset)])
    assert (config.mine.coef, config.plugins) == (0.75, (str(path),))
    assert build(yaml.safe_load(jmarl.config.train_config.to_yaml(config))) == config
    grid = ["--preset", str(preset), "--grid", "mine.coef=0.1,0.2"]
    made = plan(sweep.parse(grid))
    assert [m.config.mine.coef for m in made.members] == [0.1, 0.2]
    assert made.members[0].config.plugins == (str(path),)


def test_from_python_a_changed_file_is_imported_again(written):
    path = written("third_plugin.py", world())
    options = {"env": "mine/world", "algorithm": "ippo", "plugins": [str(path)]}
    assert build(options).plugins == (str(path),)
    assert jmarl.check_env("mine/world") == []
    before = WORLDS["mine/world"]
    build(options)
    assert WORLDS["mine/world"] is before
    path.write_text(world("reward = reward + 1"), encoding="utf-8")
    build(options)
    assert WORLDS["mine/world"] is not before
    with pytest.raises(ConfigError, match=r"options of mine/world: got an unexpected .*'bonsu'"):
        jmarl.make("mine/world", bonsu=1)
    with pytest.raises(ConfigError, match=r"did you mean 'mine/world'"):
        jmarl.make("mine/word")


def test_modules_and_installed_packages(written, monkeypatch, tmp_path):
    written("fourth_plugin.py", ALGORITHM)
    written("fifth_plugin.py", ALGORITHM.replace("mine", "fifth"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert plugins.load_plugins(["fourth_plugin"]) == ("fourth_plugin",)
    assert "mine" in ALGORITHMS
    point = metadata.EntryPoint("fifth", "fifth_plugin", plugins.ENTRY_POINTS)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    monkeypatch.setattr(plugins, "_installed", [])
    assert build({"algorithm": "fifth"}).algorithm == "fifth"


BAD = [
    ("import jax\ndef f(:\n", r"line 2: SyntaxError: invalid syntax"),
    ("x = 1\n\nraise ValueError('no luck\\nat all')", r"line 3: ValueError: no luck\.$"),
    ("import jmarl\njmarl.register_algorithm('mat', like='ippo')", r"line 2: .*'mat' is built in"),
    ("import no_such_module_here\n", r"line 1: ModuleNotFoundError: No module named"),
    ("raise SystemExit(3)", r"line 1: SystemExit: 3\.$"),
]


@pytest.mark.parametrize(("text", "words"), BAD)
def test_a_plugin_that_cannot_be_imported_is_refused_with_its_line(text, words, written, called):
    path = written("bad_plugin.py", text)
    code, said = called(train, "--plugin", path, *TINY)
    assert code == 2
    assert said.startswith(f"plug-in '{path}', ")
    assert re.search(words, " ".join(said.split()))
    assert "bad_plugin" not in sys.modules
    assert not plugins.LOADED.keys() & {"bad_plugin"}


def test_a_plugin_that_is_not_there_is_refused(tmp_path, called):
    for name, words in (
        (tmp_path / "gone.py", "cannot be read: No such file"),
        ("no_such_plugin_module", "there is no module 'no_such_plugin_module'"),
    ):
        code, said = called(train, "--plugin", name, *TINY)
        assert code == 2
        assert words in " ".join(said.split())
    assert called(train, "--plugin")[0] == 2
    with pytest.raises(ConfigError, match="is not a list of files and modules"):
        build({"plugins": "x.py"})


def test_a_file_cannot_take_the_name_of_another_module(written):
    with pytest.raises(ConfigError, match="'json', which exists already: rename"):
        plugins.load_plugins([str(written("json.py", ""))])
    with pytest.raises(ConfigError, match="'my-world', which is no name: rename"):
        plugins.load_plugins([str(written("my-world.py", ""))])


WRONG = [
    ("reward = reward[:, None]", r"world 'mine/world' \('.*sixth_plugin\.py', line \d+\): step"),
    ("reward.nothing", r"step fails: plug-in '.*sixth_plugin\.py', line 15: AttributeError"),
]


@pytest.mark.parametrize(("hook", "words"), WRONG)
def test_wrong_shapes_are_refused_before_anything_is_on_disk(
    hook, words, written, called, tmp_path
):
    path = written("sixth_plugin.py", world(hook))
    code, said = called(train, "--plugin", path, *TINY, "--run-dir", tmp_path / "run")
    assert code == 2
    assert re.search(words, " ".join(said.split()))
    assert not (tmp_path / "run").exists()


POLICY = """import dataclasses
import jmarl
from jmarl.algorithms.actor_critic import make_actor_critic


@dataclasses.dataclass(frozen=True)
class Wrong:
    inner: object
    recurrent: bool = False
    reads_state: bool = False
    value_head: tuple = ("out",)

    def init(self, key):
        return self.inner.init(key)

    def memory(self, num_envs):
        return ()

    def __call__(self, params, memory, seen):
        return memory, self.inner(params, memory, seen)[1][..., None]


def make_policy(config, spec, agents, team=None):
    policy = make_actor_critic(config, spec, agents, team)
    return dataclasses.replace(policy, critic=Wrong(policy.critic))


jmarl.register_algorithm("wrong", like="mappo", make_policy=make_policy)
"""


def test_a_policy_whose_values_have_a_wrong_shape_is_refused(written, called, tmp_path):
    path = written("seventh_plugin.py", POLICY)
    arguments = ["--plugin", path, *TINY, "--env", "probe/constant", "--algorithm", "wrong"]
    code, said = called(train, *arguments, "--run-dir", tmp_path / "run")
    assert code == 2
    line = POLICY[: POLICY.index("def make_policy")].count("\n") + 1
    words = rf"'wrong' \('{path}', line {line}\): .* value has shape \(2, 1, 1\), not \(2, 1\)"
    assert re.search(words, " ".join(said.split()))
    assert not (tmp_path / "run").exists()


BOOM = """def boom(_):
            if pathlib.Path(FLAG).exists():
                raise ValueError("the bridge is out")
        jax.debug.callback(boom, state.step)"""


@pytest.mark.long
def test_a_run_whose_plugin_raises_in_the_middle_keeps_what_it_has(written, called, tmp_path):
    """The first updates are on disk; mended, the plug-in must be named again, and the run ends."""
    flag, run = tmp_path / "flag", tmp_path / "run"
    hook = BOOM.replace("FLAG", repr(str(flag)))
    path = written("eighth_plugin.py", "import pathlib\n" + world(hook))
    arguments = ["--plugin", path, *TINY, "--run-dir", run]
    code, said = called(train, *arguments, "--total-updates", "2")
    assert code == 0, said
    kept = json.loads((run / "versions.json").read_text(encoding="utf-8"))["plugins"]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert [(one["path"], one["sha256"]) for one in kept] == [(str(path), digest)]
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8")

    flag.touch()
    code, said = called(train, "--resume", run, "--total-updates", "4")
    assert code == 1
    assert re.search(rf"plug-in '{path}', line \d+: ValueError: the bridge is out\.", said), said
    assert len(said.strip().splitlines()) < 6  # progress, and one sentence
    assert (run / "metrics.jsonl").read_text(encoding="utf-8").startswith(lines)
    assert sorted(p.name for p in (run / "checkpoints").iterdir() if p.name[:6] == "update")

    path.write_text(world(), encoding="utf-8")
    code, said = called(train, "--resume", run, "--total-updates", "4")
    assert code == 2
    assert "is not what" in said
    assert f"--plugin {path}" in said
    with pytest.warns(UserWarning, match="it has changed since"):
        policy = jmarl.load_policy(run)
    assert np.shape(policy.act(np.zeros((1, policy.spec.obs_size)))[0]) == (1,)
    code, said = called(train, "--resume", run, "--plugin", path, "--total-updates", "4")
    assert code == 0, said
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jmarl.load_policy(run)

    path.rename(tmp_path / "moved.py")
    plugins.LOADED.pop("eighth_plugin")
    code, said = called(evaluate, run, "--episodes", "2")
    assert code == 2
    assert f"plug-in '{path}' cannot be read" in " ".join(said.split())
