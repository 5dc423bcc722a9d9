"""Declarations of options: each is complete, says which algorithms use it, and all follow them."""

import inspect
import re
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import jax
import pytest
import yaml

import jmarl
from jmarl.algorithms.build import make_env, make_players
from jmarl.api import configured
from jmarl.commands import sweep, train
from jmarl.commands.train_help import page
from jmarl.config.declaration import Group, Option, declared, fields_of
from jmarl.config.option_names import traced
from jmarl.config.stored import as_it_ran, read_stored
from jmarl.config.sweep_options import SweepConfig
from jmarl.config.sweep_values import build as build_sweep
from jmarl.config.train_config import OPTIONS, Config, NetConfig, build, to_yaml
from jmarl.errors import ConfigError
from jmarl.learning.ppo_loss import HyperParams
from jmarl.registry import ALGORITHMS
from jmarl.reports.data import find_runs, read_run
from jmarl.reports.groups import compared
from jmarl.sweeps.plan import plan
from tests.support.report_files import config_of, write_run

ROOT = Path(__file__).parents[2]
MAT = {"mat", "mat_dec", "mat_encoder", "mat_decoder", "mat_gru"}
HAPPO = {"happo", "rhappo"}
RECURRENT = {"rmappo", "rippo", "rhappo"}
ACTOR_CRITIC = {"mappo", "ippo", "ppo", *RECURRENT, *HAPPO}
# Options that not all algorithms use, by hand.
USERS = {
    "net.n_embd": MAT,
    "net.n_head": MAT - {"mat_gru"},
    "net.n_block": MAT - {"mat_gru"},
    "net.share_actor": {"mat_dec"},
    "net.agent_order": {"mat", "mat_decoder", "mat_gru"},
    **dict.fromkeys(("net.gru_layers", "net.gru_norm", "net.start_state"), RECURRENT),
    "ppo.chunk_length": RECURRENT,
    **dict.fromkeys(("net.hidden", "net.critic_hidden", "net.head_hidden"), ACTOR_CRITIC),
    **dict.fromkeys(("net.critic_head_hidden", "net.activation", "net.gain"), ACTOR_CRITIC),
    **dict.fromkeys(("net.input_norm", "net.layer_norm", "net.head_init"), ACTOR_CRITIC),
    **dict.fromkeys(("net.actor_gain", "net.critic_gain", "net.critic_input"), ACTOR_CRITIC),
    **dict.fromkeys(("net.agent_id", "net.squash_mean", "ppo.critic_lr_factor"), ACTOR_CRITIC),
    "ppo.clip_apart": ACTOR_CRITIC - HAPPO,
    **dict.fromkeys(("net.share", "ppo.advantage_entries"), (MAT | ACTOR_CRITIC) - HAPPO),
    **dict.fromkeys(("happo.fixed_order", "happo.critic_epochs"), HAPPO),
    "net.body": ACTOR_CRITIC,
}
OTHER_VALUES = {  # of each option of the networks, than its default
    **{"n_embd": 16, "n_head": 2, "n_block": 2, "share_actor": False, "agent_order": "random"},
    **{"hidden": (8,), "critic_hidden": (8,), "head_hidden": (8,), "critic_head_hidden": (8,)},
    **{"activation": "tanh", "input_norm": False, "layer_norm": False, "gain": 3.0},
    **{"actor_gain": 2.0, "critic_gain": 2.0, "head_init": "torch_default", "gru_layers": 2},
    **{"gru_norm": False, "start_state": "zero", "agent_id": "obs", "critic_input": "state"},
    **{"share": "all", "precision": "bfloat16", "distribution": "beta", "log_std": -1.0},
    **{"squash_mean": True, "body": "flax.linen:LayerNorm", "conv_features": (4,)},
}


@pytest.mark.parametrize("section", [Config, SweepConfig])
def test_every_option_is_declared_in_full(section):
    for name, info in fields_of(section):
        record = declared(info)
        assert isinstance(record, Option), name
        assert record.group in get_args(Group), name
        assert re.fullmatch(r"[A-Zλσε].*[.…]", info.description, re.DOTALL), name
        assert not info.is_required(), name
        assert record.algorithms, name
        assert set(record.algorithms) <= set(ALGORITHMS), name
        assert record.learning or record.unswept, name


def test_a_field_without_a_declaration_is_noticed():
    class Plain(NetConfig):
        undeclared: int = 3

    with pytest.raises(TypeError, match=r"not declared by option\(\)"):
        [declared(info) for _, info in fields_of(Plain)]


def test_every_algorithm_has_its_facts_and_its_defaults_are_options_that_it_uses():
    for algorithm in ALGORITHMS:
        build({"algorithm": algorithm})


def test_traced_options_are_the_hyperparameters():
    assert {name for name in OPTIONS if traced(name)} == {
        f"ppo.{name}" for name in inspect.signature(HyperParams).parameters
    }


def test_options_are_used_by_whom_they_should_be():
    everybody = set(ALGORITHMS)
    for name, option in OPTIONS.items():
        assert set(option.algorithms) == USERS.get(name, everybody), name


@pytest.mark.parametrize("algorithm", tuple(ALGORITHMS))
def test_what_an_algorithm_uses_of_the_networks_it_reads(algorithm):
    """An option that is used changes a policy. (One that is not may still be stored in it.)"""
    assert OTHER_VALUES.keys() == NetConfig.model_fields.keys()
    chosen = {"algorithm": algorithm, "env": "mpe/simple_spread", "actions": "continuous"}
    config = build(chosen | ({"net": {"distribution": None}} if algorithm == "ppo" else {}))
    spec = replace(make_env(config).spec, obs_shape=(3, 3, 2))

    def players(**net):
        net = config.net.model_copy(update=net)
        return make_players(config.model_copy(update={"net": net}), spec)

    for name, value in OTHER_VALUES.items():
        value = not getattr(config.net, name) if isinstance(value, bool) else value
        value = "relu" if getattr(config.net, name) == value == "tanh" else value
        if algorithm in OPTIONS[f"net.{name}"].algorithms:
            assert players(**{name: value}) != players(), name


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        *product(("mat_gru",), ("n_head", "n_block", "share_actor", "hidden", "gain")),
        *product(("mat", "mat_encoder"), ("share_actor", "activation", "agent_id", "gru_norm")),
        *product(("mappo", "ippo"), ("gru_layers", "gru_norm", "start_state", "n_embd", "n_block")),
    ],
)
def test_what_an_algorithm_does_not_use_leaves_its_networks_as_they_are(algorithm, name):
    config = build({"algorithm": algorithm})
    spec = make_env(config).spec
    net = config.net.model_copy(update={name: OTHER_VALUES[name]})
    programs = [
        str(jax.make_jaxpr(make_players(each, spec)[0].policy.init)(jax.random.key(0)))
        for each in (config, config.model_copy(update={"net": net}))
    ]
    assert programs[0] == programs[1]


REFUSED = [
    ("mat", "net.hidden", [64], "mappo, ippo, rmappo, rippo, ppo, happo and rhappo"),
    (
        "mat",
        "net.hidden",
        [64, 64],
        "mappo, ippo, rmappo, rippo, ppo, happo and rhappo",
    ),  # its default
    ("mat", "ppo.clip_apart", True, "mappo, ippo, rmappo, rippo and ppo"),
    ("mat", "ppo.critic_lr_factor", 2.0, "mappo, ippo, rmappo, rippo, ppo, happo and rhappo"),
    ("mat", "net.share_actor", False, "mat_dec"),
    ("mat_gru", "net.n_head", 1, "mat, mat_dec, mat_encoder and mat_decoder"),
    ("mat_dec", "net.agent_order", "random", "mat, mat_decoder and mat_gru"),
    ("mappo", "net.n_embd", 32, "mat, mat_dec, mat_encoder, mat_decoder and mat_gru"),
    ("mappo", "ppo.chunk_length", 5, "rmappo, rippo and rhappo"),
    ("ippo", "net.gru_layers", 1, "rmappo, rippo and rhappo"),
    ("ppo", "net.start_state", "zero", "rmappo, rippo and rhappo"),
]
SENTENCE = "{} is an option of {}; algorithm='{}' does not use it."


def nested(name, value):
    section, _, leaf = name.partition(".")
    return {section: {leaf: value}}


@pytest.mark.parametrize(("algorithm", "name", "value", "users"), REFUSED)
def test_options_of_others_are_refused_by_name(algorithm, name, value, users, tmp_path):
    """In Python, in a preset with its line, on the command line, and in a sweep."""
    sentence = SENTENCE.format(name, users, algorithm)
    given = {"algorithm": algorithm, **nested(name, value)}
    for refuse in (build, jmarl.train):
        with pytest.raises(ConfigError) as refused:
            refuse(given)
        assert str(refused.value) == sentence
    path = tmp_path / "preset.yaml"
    path.write_text(yaml.safe_dump(given, sort_keys=False), encoding="utf-8")
    leaf = name.rpartition(".")[2]
    place = f" Delete {leaf!r} in line 3 of {str(path)!r}."
    with pytest.raises(ConfigError) as refused:
        train.parse([str(path)])
    assert str(refused.value) == sentence + place
    with pytest.raises(ConfigError) as refused:
        sweep.parse(["--preset", str(path), "--seeds", "2"])
    assert str(refused.value) == sentence + place
    for where in ({"base": {name: value}, "seeds": 2}, {"grid": {leaf: [value]}}):
        base = where.get("base", {}) | {"algorithm": algorithm}
        with pytest.raises(ConfigError) as refused:
            build_sweep({**where, "base": base})
        assert str(refused.value) == sentence


def test_a_configuration_made_by_hand_is_looked_at_too():
    with pytest.raises(ConfigError, match=r"net\.hidden is an option of mappo"):
        jmarl.train(Config(net=NetConfig(hidden=(8,))))
    with pytest.raises(ConfigError, match=r"net\.hidden is an option of mappo"):
        jmarl.train(Config(net=NetConfig(hidden=(8,))), total_updates=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--algorithm", "mappo", "--net.n-embd", "32"),
        ("--net.n_embd=32", "--algorithm=mappo"),
        ("configs/mappo_simple_spread.yaml", "--net.n-embd", "32"),
    ],
)
def test_a_command_that_names_an_option_of_others_ends_with_one_sentence(arguments):
    command = [sys.executable, "-m", "jmarl.train", *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=100, cwd=ROOT)
    users = "mat, mat_dec, mat_encoder, mat_decoder and mat_gru"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == SENTENCE.format("net.n_embd", users, "mappo") + "\n"


@pytest.mark.parametrize(
    "switch", ["--ppo.clip-apart", "--ppo.no-clip-apart", "--ppo.no_clip_apart"]
)
def test_switches_are_refused_whichever_way_they_point(switch):
    with pytest.raises(ConfigError, match=r"ppo\.clip_apart is an option of mappo"):
        train.parse([switch])


def test_all_lines_of_a_preset_are_named_at_once(tmp_path):
    path = tmp_path / "old.yaml"
    path.write_text("ppo: {lr: 0.1, clip_apart: false}\nnet:\n  n_embd: 8\n  hidden: [8]\n")
    with pytest.raises(ConfigError, match=r"Delete 'clip_apart' in line 1 and 'hidden' in line 4 "):
        train.parse([str(path)])
    path.write_text("base: {total_steps: 9e9}\n\ngrid:\n  lr: [1.0e-3, 1.0]\n  hidden: [[8]]\n")
    with pytest.raises(ConfigError, match=r"Delete 'hidden' in line 5 of"):
        sweep.parse([str(path)])
    path.write_text("net:\n  encode_state: false\n")
    with pytest.raises(ConfigError, match=r"no longer an option\. Delete 'encode_state' in line 2"):
        train.parse([str(path)])


def test_what_is_typed_is_not_looked_for_in_the_preset(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("algorithm: mappo\n", encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        train.parse([str(path), "--net.n-embd", "8"])
    assert "Delete" not in str(refused.value)


def test_another_algorithm_for_a_configuration_leaves_its_own_options_behind():
    """Of a `Config`, all options are resolved: nobody has asked for those of the old algorithm."""
    config = build({"net": {"n_embd": 16, "precision": "bfloat16"}})
    other = configured(config, {"algorithm": "mappo"})
    assert other.net == NetConfig(precision="bfloat16")
    assert other.ppo.lr == config.ppo.lr
    with pytest.raises(ConfigError, match=r"net\.n_embd is an option of mat"):
        configured(config, {"algorithm": "mappo", "net": {"n_embd": 8}})


def test_members_of_a_sweep_over_algorithms_have_what_theirs_use():
    """And values that an algorithm does not use are no settings of it."""
    grid = {"algorithm": ["mat", "mappo"], "n_embd": [16, 32], "lr": [1e-3, 2e-3]}
    made = plan(build_sweep({"grid": grid, "base": {"net": {"hidden": [8]}}}))
    found = [(m.settings["algorithm"], m.settings["net.n_embd"]) for m in made.members]
    assert found == [("mat", 16)] * 2 + [("mat", 32)] * 2 + [("mappo", "–")] * 2
    for member in made.members:
        assert build(yaml.safe_load(to_yaml(member.config))) == member.config
        if member.config.algorithm == "mat":
            assert member.config.net.hidden == (64, 64)
        else:
            assert member.config.net.hidden == (8,)
    with pytest.raises(
        ConfigError, match=r"gru_norm is an option of rmappo, rippo and rhappo; algorithm="
    ):
        build_sweep({"grid": {"algorithm": ["mat", "mappo"], "gru_norm": [True, False]}})


def flags(text):
    return re.findall(r"^ (--[\w.-]+)", text, re.MULTILINE)


def expected(algorithm):
    names = {name for name in OPTIONS if algorithm in USERS.get(name, {algorithm})}
    return {f"--{name.replace('_', '-')}" for name in names}


@pytest.mark.parametrize("algorithm", tuple(ALGORITHMS))
def test_help_lists_what_the_algorithm_uses(algorithm, called, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, said = called(train, "--algorithm", algorithm, "--help")
    assert code == 0
    found = flags(said)
    assert len(found) == len(set(found))
    assert set(found) == expected(algorithm)
    assert found[0] == "--algorithm"
    last = max(found.index(flag) for flag in ("--env", "--seed", "--total-steps", "--ppo.lr"))
    assert last < found.index("--ppo.adam-eps")
    assert not re.search(r"\bmat:|mappo, ippo:", said)


def test_help_shows_mat_by_default_with_its_own_defaults(called, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    _, said = called(train, "--help")
    assert set(flags(said)) == expected("mat")
    assert re.search(r"--ppo\.lr +FLOAT +Learning rate\. \(default: 0\.003; > 0\)", said)
    _, said = called(train, ROOT / "configs" / "mat_long_simple_spread.yaml", "--help")
    assert re.search(r"--ppo\.lr +FLOAT +Learning rate\. \(default: 0\.0007; > 0\)", said)


def test_help_all_lists_everything_and_says_for_whom(called, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, said = called(train, "--help-all")
    assert code == 0
    assert set(flags(said)) == {f"--{name.replace('_', '-')}" for name in OPTIONS}
    assert re.search(r"--ppo\.chunk-length .*for rmappo, rippo and rhappo\)", said)


def test_help_of_an_algorithm_that_does_not_exist_is_refused(called):
    code, said = called(train, "--algorithm", "mta", "--help")
    assert code == 2
    assert said.startswith("algorithm='mta' is refused")


def test_the_page_of_options_is_up_to_date():
    """If it is not: write it anew, as its second line says."""
    assert (ROOT / "docs" / "options.md").read_text(encoding="utf-8") == page()


def stored_before(algorithm, **net):
    """config.yaml as earlier versions wrote it: all options, used or not."""
    values = build({"algorithm": algorithm}).model_dump(mode="json")
    values["net"] |= {"encode_state": False, **net}
    return values


@pytest.mark.parametrize("algorithm", tuple(ALGORITHMS))
def test_runs_of_earlier_versions_are_read(algorithm, tmp_path):
    unused = {"n_embd": 8} if algorithm in ACTOR_CRITIC else {"hidden": [8], "activation": "tanh"}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(stored_before(algorithm, **unused)), encoding="utf-8")
    config = build({"algorithm": algorithm})
    assert build(read_stored(path)) == config
    path.write_text(to_yaml(config), encoding="utf-8")
    assert build(read_stored(path)) == config
    named = {
        f"{section}.{name}" for section in ("net", "ppo") for name in read_stored(path)[section]
    }
    assert not {name for name in named if algorithm not in USERS.get(name, {algorithm})}


def test_what_an_earlier_version_did_is_kept():
    """net.squash_mean was read by transformers, too: it made their distribution a Gaussian."""
    config = build(as_it_ran(stored_before("mat", squash_mean=True)))
    assert config.net.distribution == "gaussian"
    assert build(as_it_ran(stored_before("mat"))).net.distribution is None
    kept = build(as_it_ran(stored_before("mappo", squash_mean=True)))
    assert kept.net.squash_mean
    assert kept.net.distribution is None


@pytest.mark.parametrize("algorithm", tuple(ALGORITHMS))
def test_runs_from_before_distributions_had_gaussians(algorithm):
    """mpe2's actions have finite bounds, so that the default would be another distribution."""
    stored = stored_before(algorithm) | {"env": "mpe/simple", "actions": "continuous"}
    del stored["net"]["distribution"]
    config = build(as_it_ran(stored))
    assert config.net.distribution == "gaussian"
    policy = make_players(config, make_env(config).spec)[0].policy
    assert policy.distribution == "gaussian"


def test_a_stored_option_that_never_existed_is_still_refused(tmp_path):
    for net in ({"encode_state": True}, {"n_embdd": 8}):
        with pytest.raises(ConfigError, match=next(iter(net))):
            build(as_it_ran(stored_before("mat", **net)))


def test_an_older_sweep_is_resumed_without_what_nobody_used(tmp_path):
    values = {
        "base": {"algorithm": "mappo", "net.n_embd": 8, "net.encode_state": False, "seed": 3},
        "grid": {"ppo.lr": [0.1, 0.2]},
    }
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    resumed = sweep.parse(["--resume", str(tmp_path)])
    assert resumed.base == {"algorithm": "mappo", "seed": 3}


def test_a_resumed_run_refuses_options_of_others(tmp_path):
    (tmp_path / "config.yaml").write_text(
        yaml.safe_dump(stored_before("mat", hidden=[8])), encoding="utf-8"
    )
    resume = ["--resume", str(tmp_path)]
    assert train.parse(resume).net == build({}).net
    assert train.parse([*resume, "--log-every", "3", "--no-gif"]).log_every == 3
    assert train.parse([*resume, "--ppo.lr", "1"]).ppo.lr == 1  # traced: no program depends on it
    for typed, words in (
        (["--net.hidden", "8"], r"net\.hidden is an option of mappo"),
        (["--algorithm", "mappo"], "algorithm was 'mat', now 'mappo'"),
        (["--num-envs", "64"], "num_envs was 128, now 64"),
        (["--ppo.epochs", "1"], r"ppo\.epochs was \d+, now 1"),
        (["--env-options", "num_agents", "4"], r"env_options was {}, now {'num_agents': 4}"),
    ):
        with pytest.raises(ConfigError, match=words):
            train.parse([*resume, *typed])


def test_options_that_may_change_on_resume_are_those_that_the_state_does_not_hold():
    """By hand."""
    words = "total_steps total_updates stop_at_return eval_every eval_episodes log_every "
    words += "checkpoint_every keep_checkpoints on_nonfinite compilation_cache run_dir resume "
    words += "tensorboard gif wandb quiet members_per_batch devices hosts.join hosts.coordinator "
    words += "hosts.processes hosts.process_id plugins"
    assert {name for name, option in OPTIONS.items() if option.resumable} == set(words.split())


def test_runs_that_differ_in_nothing_that_matters_to_learning_are_one_setting(tmp_path):
    """`gif`, `log_every` and the like; also a run of an earlier version, which stored more."""
    for seed, apart in enumerate(
        [
            {},
            {"gif": False, "log_every": 3, "wandb": True, "tensorboard": False, "quiet": True},
            {"compilation_cache": False, "run_dir": "x", "members_per_batch": 2, "devices": 1},
            {"net": {"hidden": [8, 8], "n_embd": 3, "encode_state": False}},
        ]
    ):
        write_run(tmp_path / str(seed), config_of(seed, **apart), [-2.0, -1.0])
    (world,) = compared([read_run(path) for path in find_runs([tmp_path])])
    (setting,) = world.settings
    assert len(setting.runs) == 4
    assert setting.label == "mappo"
    write_run(tmp_path / "other", config_of(9, num_envs=10), [-2.0, -1.0])
    (world,) = compared([read_run(path) for path in find_runs([tmp_path])])
    assert sorted(len(one.runs) for one in world.settings) == [1, 4]
