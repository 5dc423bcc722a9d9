"""Configurations: what is accepted, and how the rest is refused."""

import contextlib
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import jmarl
from jmarl.algorithms.build import make_env, make_players, make_trainer
from jmarl.commands.train import parse
from jmarl.config.options import PpoConfig
from jmarl.config.train_config import Config, build, read_preset, to_yaml
from jmarl.envs.spaces import Box
from jmarl.errors import ConfigError
from jmarl.runs import directory as run_dir

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


def test_the_written_configuration_gives_the_same_one_back():
    config = build(
        {"seed": 3, "run_dir": "x", "ppo": {"lr": 1e-3}, "env_options": {"num_agents": 4}}
    )
    assert build(yaml.safe_load(to_yaml(config))) == config


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_presets_are_valid_and_every_key_is_explained(path):
    build(read_preset(path))
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            assert "#" in line, f"{line!r} has no comment"


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("mat_reference_simple_spread", 21),  # MAT's fork appends a one-hot agent id
        ("mappo_reference_simple_spread", 18),  # on-policy does not
        ("rmappo_reference_simple_spread", 18),
        ("rmappo_reference_simple_reference", 21),
        ("rmappo_reference_simple_speaker_listener", 11),
        ("mappo_xuance_simple_spread", 18),  # XuanCe appends ids to features
        ("ippo_xuance_simple_spread", 18),
    ],
)
def test_reference_presets_observe_as_many_numbers_as_the_references(name, inputs):
    preset = next(path for path in CONFIGS if path.stem == name)
    assert make_env(build(read_preset(preset))).spec.obs_size == inputs


def test_the_networks_of_speaker_and_listener_have_no_padding():
    """As on-policy's: 3 numbers and 3 actions of the one, 11 and 5 of the other."""
    name = "rmappo_reference_simple_speaker_listener"
    preset = next(path for path in CONFIGS if path.stem == name)
    trainer, _ = make_trainer(build(read_preset(preset)))
    shapes = [jax.eval_shape(group.policy.init, jax.random.key(0)) for group in trainer.players]
    assert [net["actor"]["input_norm"]["scale"].shape for net in shapes] == [(3,), (11,)]
    assert [net["actor"]["out"]["bias"].shape for net in shapes] == [(3,), (5,)]
    assert [net["critic"]["input_norm"]["scale"].shape for net in shapes] == [(14,), (14,)]


@pytest.mark.parametrize(
    "path",
    [x for x in CONFIGS if re.search("reference_simple|xuance", x.stem)],
    ids=lambda x: x.stem,
)
def test_presets_of_references_say_what_differs(path):
    assert "What still differs from the reference" in path.read_text(encoding="utf-8")


def test_the_command_line_overrides_the_preset():
    preset = next(path for path in CONFIGS if path.stem == "mat_reference_simple_spread")
    assert parse([str(preset)]).ppo.clip_eps == 0.05
    assert parse([str(preset), "--ppo.clip-eps", "0.3"]).ppo.clip_eps == 0.3
    assert parse([str(preset), "--ppo.clip-eps", "0.3"]).env_options["dialect"] == "onpolicy"


def test_no_arguments_give_the_run_that_a_preset_documents():
    """The preset names every default that MAT has of its own: without these it is the same."""
    (preset,) = (read_preset(path) for path in CONFIGS if path.stem == "mat_simple_spread")
    assert parse([]) == build(preset) == Config(**preset)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"num_env": 4}, ["'num_env'", "did you mean 'num_envs'"]),
        ({"ppo": {"clip": 0.1}}, ["'ppo.clip'", "did you mean 'ppo.clip_eps'"]),
        ({"num_envs": "many"}, ["num_envs='many'"]),
        ({"num_envs": 0}, ["num_envs=0", "greater than or equal to 1"]),
        ({"ppo": {"gamma": 1.5}}, ["ppo.gamma=1.5", "less than or equal to 1"]),
        ({"algorithm": "mta"}, ["algorithm='mta'", "'mat'"]),
        ({"net": {"n_embd": 64, "n_head": 5}}, ["net.n_head=5", "net.n_embd=64"]),
        ({"ppo": {"num_minibatches": 3}}, ["ppo.num_minibatches=3", "num_envs = 128"]),
        ({"total_steps": 10}, ["total_steps=10", "3200"]),
        ({"net": {"encode_state": False}}, ["net.encode_state is no longer an option"]),
        (
            {"ppo": {"advantage_entries": "all"}},
            ["ppo.advantage_entries='all'", "advantage_norm='batch'", "'minibatch'"],
        ),
        ({"net": {"distribution": "normal"}}, ["net.distribution='normal'", "'gaussian'"]),
        (
            {"algorithm": "mappo", "net": {"squash_mean": True, "distribution": "beta"}},
            ["net.squash_mean=True", "net.distribution='beta'", "'gaussian'"],
        ),
        ({1: 2}, ["keys must be names"]),
        ({"algorithm": "ppo", "net": {"hidden": []}}, ["net.hidden=[]", "at least 1"]),
        (
            {"algorithm": "ippo", "net": {"critic_hidden": []}},
            ["net.critic_hidden=[]", "at least 1"],
        ),
        (
            {"algorithm": "ippo", "net": {"hidden": [8, 0]}},
            ["net.hidden.1=0", "greater than or equal to 1"],
        ),
        ({"algorithm": "ippo", "net": {"critic_hidden": [-1]}}, ["net.critic_hidden.0=-1"]),
        ({"algorithm": "ppo", "total_steps": 2000}, ["total_steps=2000", "2048"]),
    ],
)
def test_refusals_name_the_key_and_the_value(values, words):
    with pytest.raises(ConfigError) as refused:
        build(values)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- 1\n- 2\n", "not a mapping"),
        ("a: [", "not YAML"),
        ("!!python/object:os.system {}", "not YAML"),
    ],
)
def test_presets_that_are_none(text, words, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        read_preset(path)


HOSTILE = [
    "env: ../../x",
    "env: mpe/../../etc/passwd",
    "run_dir: [1, 2]",
    "num_envs: 1e400",
    "num_envs: -1",
    "seed: 99999999999999999999999999",
    "total_steps: .nan",
    "algorithm: '[red]mat[/red]'",
    "env_options: {a: {b: c}}",
    "ppo: {lr: !!python/object/apply:os.system ['x']}",
    "? [a, b]\n: c",
    "&a [*a]",
    "num_envs: 0x1p3",
]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.dictionaries(
        st.sampled_from([*Config.model_fields, "x", "", "../../x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.text(max_size=4), inner, max_size=2)
            ),
            max_leaves=3,
        ),
        max_size=4,
    )
)
def test_wild_values_are_built_or_refused_never_more(values):
    with contextlib.suppress(ConfigError):  # any other exception fails the test
        build(values)


def test_an_algorithm_brings_its_own_defaults_under_what_is_given():
    config = build({"algorithm": "ppo", "ppo": {"gamma": 0.5}, "net": {"hidden": [8]}})
    assert (config.ppo.gamma, config.net.hidden) == (0.5, (8,))
    assert (config.ppo.target_kl, config.net.activation) == (0.02, "tanh")
    assert build({}).ppo.target_kl == 0
    assert build({}) == build({"algorithm": "mat"})
    assert build({"algorithm": "mat_dec"}).ppo == PpoConfig()
    assert config.updates_between_evaluations == config.num_updates // 150


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"env": "mpe/simple_spread"}, "mpe/simple_spread has discrete actions"),
        ({"env": "unbounded/x"}, r"agent_0 has low=\(-inf,\) and high=\(1.0,\)"),
        ({"env": "unlike/x"}, r"agent_1 has low=\(-1.0, -1.0\) .*, others have low=\(0.0, 0.0\)"),
    ],
)
@pytest.mark.parametrize(
    ("option", "algorithm", "net"),
    [
        ("net.distribution='tanh'", "mat", {"distribution": "tanh"}),
        ("net.distribution='beta'", "mappo", {"distribution": "beta"}),
        ("net.squash_mean=True", "mappo", {"squash_mean": True}),
    ],
)
def test_bounds_are_needed_for_actions_between_them(
    values, words, option, algorithm, net, monkeypatch
):
    spaces = {
        "unbounded/x": (Box((-np.inf,), (1.0,)),) * 2,
        "unlike/x": (Box.uniform(0, 1, 2), Box.uniform(-1, 1, 2)),
    }
    if values["env"] in spaces:
        spec = replace(jmarl.make("probe/coordination").spec, action_spaces=spaces[values["env"]])
        monkeypatch.setattr(
            "jmarl.algorithms.build.make_env", lambda config: SimpleNamespace(spec=spec)
        )
    with pytest.raises(ConfigError, match=rf"{option} needs .* finite bounds.*{words}"):
        make_trainer(build(values | {"algorithm": algorithm, "net": net}))


def start_of_noise(policy):
    return (policy.actor if hasattr(policy, "actor") else policy).log_std


@pytest.mark.parametrize("actions", ["discrete", "continuous"])
def test_a_gaussian_is_drawn_from_wherever_there_are_no_choices(actions):
    """A preset that names it fits both."""
    chosen = {"actions": actions, "net": {"distribution": "gaussian", "log_std": -1.0}}
    trainer, _ = make_trainer(build(chosen))
    policy = trainer.players[0].policy
    assert (policy.distribution, start_of_noise(policy)) == ("gaussian", -1.0)


@pytest.mark.parametrize(
    ("algorithm", "space", "net", "expected"),
    [
        ("mat", Box.uniform(-2, 2, 1), {}, ("tanh", 1.0)),
        ("mat", Box.uniform(-2, 2, 1), {"log_std": 0.0}, ("tanh", 0.0)),
        ("mat", Box.uniform(-2, 2, 1), {"distribution": "beta"}, ("beta", 0.0)),
        ("mat", Box((-2.0,), (np.inf,)), {}, ("gaussian", 1.0)),
        ("ippo", Box.uniform(-2, 2, 1), {}, ("tanh", 1.0)),
        ("ippo", Box.uniform(-2, 2, 1), {"squash_mean": True}, ("gaussian", 0.0)),
        ("mappo", Box((-2.0,), (np.inf,)), {}, ("gaussian", 0.0)),
        ("ppo", Box.uniform(-2, 2, 1), {}, ("gaussian", 0.0)),
        ("ppo", Box.uniform(-2, 2, 1), {"log_std": 0.5}, ("gaussian", 0.5)),
    ],
)
def test_actions_are_squashed_into_finite_bounds_by_default(algorithm, space, net, expected):
    spec = replace(jmarl.make("probe/context").spec, action_spaces=(space,))
    config = build({"algorithm": algorithm, "net": net})
    policy = make_players(config, spec)[0].policy
    assert (policy.distribution, start_of_noise(policy)) == expected


def test_ppo_is_refused_where_several_play():
    with pytest.raises(ConfigError, match="simple_spread has 3: choose ippo"):
        make_trainer(build({"algorithm": "ppo", "env": "mpe/simple_spread"}))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.text(max_size=40) | st.binary(max_size=40) | st.sampled_from(HOSTILE))
def test_any_file_is_read_or_refused_never_more(content):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "preset.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with contextlib.suppress(ConfigError):  # any other exception fails the test
            parse([str(path)])
        assert [path] == list(Path(directory).iterdir())


@pytest.mark.parametrize("name", ["../../x", "[bold]x[/bold]", "a/b c", "ünï\u202ecode", "$(x)"])
def test_a_run_directory_stays_where_runs_are(name, tmp_path, monkeypatch):
    """Whatever the world is called."""
    monkeypatch.chdir(tmp_path)
    path = run_dir.create(Config(env=name))
    assert path.resolve().parent == tmp_path / "runs"
    assert [entry.name for entry in tmp_path.iterdir()] == ["runs"]
    assert run_dir.create(Config(env=name)) != path
