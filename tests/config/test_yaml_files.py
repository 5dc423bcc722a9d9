"""YAML within bounds: what is refused at once, with the file and the line."""

import itertools
import time
from pathlib import Path

import pytest
import yaml

from jmarl.config.parse_values import typed_grid
from jmarl.config.stored import read_stored
from jmarl.config.train_config import build, read_preset, to_yaml
from jmarl.config.yaml_files import LARGEST, load_yaml
from jmarl.errors import ConfigError

NAMES = "abcdefghijklm"
# 9¹² entries, if it were written out
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in itertools.pairwise(NAMES)
)
MERGED = "a: &a {x: 1}\n" + "".join(
    f"{new}: &{new} {{<<: [{', '.join([f'*{old}'] * 40)}]}}\n"
    for old, new in itertools.pairwise(NAMES)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "line 6: aliases repeat more than 1 MB"),
        (MERGED, "line 5: aliases repeat"),
        ("base: &a [x, y]\n? *a\n: 1\n", "line 2: a key must be a name"),
        (f"? {'[' * 40}{']' * 40}\n: 1\n", "line 1: a key must be a name"),
        (f"seed: 1\nnet: {'[' * 51}{']' * 51}\n", "line 2: it is nested more than 50 deep"),
        (f"net: {'[' * 10**5}", "nested more than 50 deep"),
        ("seed: 1\nppo:\n  lr: 2\n  gamma: 1\n  lr: 3\n", "line 5: the key 'lr' is there twice"),
        ("net: &a [*a]\n", r"line 1: \*a contains itself"),
        (f"env: {'x' * LARGEST}\n", "is larger than 1 MB"),
        ("seed: 1\nnet: !!set {a}\n", "is not YAML: line 2: options have no tags"),
        ("seed: 1\nnet: *b\n", "is not YAML: line 2: found undefined alias"),
        ("seed: \x01\n", "is not YAML: .*control characters"),
    ],
)
def test_what_is_out_of_bounds_is_refused_at_once(text, words, tmp_path):
    path = tmp_path / "preset.yaml"
    path.write_text(text, encoding="utf-8")
    began = time.process_time()
    with pytest.raises(ConfigError, match=words) as refused:
        read_preset(path)
    assert time.process_time() - began < 2
    assert f"preset '{path}'" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_an_endless_file_is_refused():
    with pytest.raises(ConfigError, match="larger than 1 MB"):
        read_preset(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: *a", {"a": {"x": 1}, "b": {"x": 1, "y": 2}}),
        ("a: 0x10", {"a": 16}),
        (f"a: {2**62}", {"a": 2**62}),
        (f"a: {2**63}", {"a": str(2**63)}),
        ("a: 2024-13-45\nb: 2024-01-01", {"a": "2024-13-45", "b": "2024-01-01"}),
        ("- .5\n- .inf\n- 1e3", [0.5, float("inf"), "1e3"]),
    ],
)
def test_what_is_within_bounds_is_read_as_it_is_meant(text, value):
    found = load_yaml(text)
    assert found == value or {**value, "c": {"x": 1}} == found


def test_what_jmarl_wrote_may_be_large(tmp_path):
    config = build({"env": "x" * (LARGEST + 1)})
    (tmp_path / "config.yaml").write_text(to_yaml(config), encoding="utf-8")
    assert build(read_stored(tmp_path / "config.yaml")) == config


ONES, HEX = "1" * 5000, "0x" + "f" * 9000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"num_envs: {ONES}", r"num_envs='1+'*… \(5002 characters\) is refused: unable to parse"),
        (f"num_envs: {HEX}", "num_envs='0xf+"),
        (f"total_steps: {10**30}", r"total_steps=10+ is not between ±9007199254740992\."),
        (f"env_options: {{num_agents: -{10**17}}}", r"env_options\.num_agents=-10+ is not between"),
        (f"seed: {2**32}", r"seed=4294967296 is refused: .* less than or equal to 4294967295"),
        (f"seed: {2**32 - 2}\nseeds: 3", "seed=4294967294 with seeds=3 goes up to seed 4294967296"),
        ("ppo: {lr: .inf}", r"ppo\.lr=inf is refused: input should be a finite number"),
        ("ppo: {target_kl: .nan}", r"ppo\.target_kl=nan is refused: input should be a finite"),
        ("net: {log_std: -.inf}", r"net\.log_std=-inf is refused: input should be a finite"),
        ("num_envs: 2024-01-01", "num_envs='2024-01-01' is refused: input should be a valid int"),
        ("net: {n_block: 1001}", r"net\.n_block=1001 is refused: .* less than or equal to 1000"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name_and_value(text, words, tmp_path):
    path = tmp_path / "preset.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=words) as refused:
        build(read_preset(path))
    assert len(str(refused.value)) < 400


def test_numbers_that_no_python_writes_are_refused():
    with pytest.raises(ConfigError, match="num_envs=a number of more than 4300 digits"):
        build({"num_envs": 10**5000})


def test_the_largest_numbers_are_accepted():
    assert build({"seed": 2**32 - 2, "seeds": 2}).seeds == 2
    assert build({"total_steps": 2**53}).total_steps == 2**53


@pytest.mark.parametrize("value", ["[" * 60, "&a [*a]", "{a: 1, a: 2}", "\udcff"])
def test_values_of_a_sweep_have_the_same_bounds(value):
    with pytest.raises(ConfigError, match=r"^lr=.* cannot be read as a value\.$"):
        typed_grid([f"lr={value}"])


def test_what_is_written_is_read_by_any_loader():
    text = to_yaml(build({}))
    assert load_yaml(text) == yaml.safe_load(text)
