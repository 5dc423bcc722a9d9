"""Sweeps: how they are written, and how the rest is refused."""

import contextlib
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jmarl.commands.sweep import parse
from jmarl.config.option_names import WORLD, flat, nested, short_names
from jmarl.config.sweep_options import Draw
from jmarl.config.sweep_values import build, to_yaml
from jmarl.config.train_config import OPTIONS
from jmarl.errors import ConfigError

FILE = """
preset: presets/spread.yaml
base: {total_steps: 1e6, ppo: {epochs: 4}, env_options: {num_agents: 4}}
grid:
  ppo.lr: [3e-4, 1.5E-3]
  entropy_coef: [0.0, 1e-2]
random:
  gamma: {uniform: [0.9, 99e-2]}
  ppo.clip_eps: {choice: [1e-1, 0.2]}
samples: 3
seeds: 4
"""


@pytest.fixture
def sweep_file(tmp_path):
    (tmp_path / "presets").mkdir()
    preset = "algorithm: mappo\nrun_dir: elsewhere\nppo: {epochs: 9, num_minibatches: 2}\n"
    (tmp_path / "presets" / "spread.yaml").write_text(preset, encoding="utf-8")
    path = tmp_path / "sweep.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_a_file_is_read_with_its_preset_short_names_and_numbers(sweep_file):
    sweep = parse([str(sweep_file)])
    assert sweep.base == {
        "algorithm": "mappo",
        "ppo.epochs": 4,
        "ppo.num_minibatches": 2,
        "total_steps": 1e6,
        "env_options.num_agents": 4,
    }
    assert sweep.grid == {"ppo.lr": (3e-4, 1.5e-3), "ppo.entropy_coef": (0.0, 0.01)}
    assert sweep.random == {
        "ppo.gamma": Draw(uniform=(0.9, 0.99)),
        "ppo.clip_eps": Draw(choice=(0.1, 0.2)),
    }
    assert (sweep.samples, sweep.seeds) == (3, 4)


def test_the_command_line_goes_over_the_file_by_name(sweep_file):
    typed = (
        "--seeds 2 --base algorithm=ippo total-steps=2e5 --grid gamma=0.5,0.6 "
        "net.hidden=[64,64],[8] --random lr=log_uniform:1e-4:1e-2"
    )
    sweep = parse([str(sweep_file), *typed.split()])
    assert (sweep.base["algorithm"], sweep.base["total_steps"]) == ("ippo", 2e5)
    assert sweep.base["ppo.epochs"] == 4
    assert sweep.grid == {
        "ppo.entropy_coef": (0.0, 0.01),
        "ppo.gamma": (0.5, 0.6),
        "net.hidden": ((64, 64), (8,)),
    }
    assert set(sweep.random) == {"ppo.clip_eps", "ppo.lr"}
    assert sweep.random["ppo.lr"] == Draw(log_uniform=(1e-4, 1e-2))
    assert (sweep.samples, sweep.seeds) == (3, 2)


def test_the_command_line_is_enough():
    sweep = parse(["--base", "algorithm=mappo", "--grid", "env=mpe/simple,mpe/simple_tag"])
    assert sweep.grid == {"env": ("mpe/simple", "mpe/simple_tag")}
    sweep = parse(["--random", "n_embd=choice:16:32", "--samples", "2"])
    assert sweep.random == {"net.n_embd": Draw(choice=(16, 32))}


def test_the_written_sweep_gives_the_same_one_back(sweep_file):
    sweep = parse([str(sweep_file), "--base", "ppo.ratio=null", "--sweep-dir", "1e5"])
    assert build(yaml.safe_load(to_yaml(sweep))) == sweep
    assert sweep.base["ppo.ratio"] is None
    assert sweep.sweep_dir == Path("1e5")


def test_a_resumed_sweep_goes_on_as_it_began(sweep_file, tmp_path):
    sweep = parse([str(sweep_file)])
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "sweep.yaml").write_text(to_yaml(sweep), encoding="utf-8")
    resumed = parse(["--resume", str(folder), "--quiet"])
    assert resumed == sweep.model_copy(update={"resume": folder, "quiet": True})
    values = yaml.safe_load(to_yaml(sweep))
    del values["confirm_seeds"]  # of a version that trained nothing once more
    (folder / "sweep.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    assert (sweep.confirmations, parse(["--resume", str(folder)]).confirmations) == (4, 0)
    with pytest.raises(ConfigError, match="only devices, plots, quiet, hosts can change"):
        parse(["--resume", str(folder), "--seeds", "9"])
    with pytest.raises(ConfigError, match="goes on as the sweep began"):
        parse([str(sweep_file), "--resume", str(folder)])
    with pytest.raises(ConfigError, match=r"is not a sweep: it has no sweep\.yaml"):
        parse(["--resume", str(tmp_path / "presets")])


GRID = {"lr": [1e-3, 2e-3]}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gird": GRID}, "unknown option 'gird': did you mean 'grid'?"),
        ({"grid": GRID, "base": {"seeds": 3}}, "base cannot have seeds: it is an option of the"),
        ({"grid": {"devices": [1, 2]}}, "devices cannot be swept: it is an option of the sweep"),
        ({"grid": GRID, "total_steps": 5}, "'total_steps' is an option of runs"),
        ({"grid": GRID, "ppo": {"lr": 1}}, "'ppo' is an option of runs"),
        ({"grid": GRID, "seeds": 10**9}, "× 1 drawn × 1,000,000,000 seeds) and 0 to confirm"),
        ({"grid": GRID, "confirm_seeds": 10**9}, "1,000,000,000 to confirm the best; at most"),
        ({"random": {"lr": {"uniform": [0, 1]}}, "samples": 10**6}, "the sweep has 1,000,000 memb"),
        ({"grid": {"gama": [1]}}, "unknown option 'gama': did you mean 'gamma'?"),
        ({"grid": {"ppo.clip": [1]}}, "did you mean 'ppo.clip_eps'?"),
        ({"base": {"num_env": 1}, "grid": GRID}, "did you mean 'num_envs'?"),
        ({"base": {"ppo": {"lrr": 1}}, "grid": GRID}, "did you mean 'ppo.lr'?"),
        ({"base": {"ppo": 3}}, "ppo=3 is not a mapping"),
        ({"base": [1]}, "base=[1] is not a mapping"),
        ({"base": {"gamma": 1, "ppo": {"gamma": 1}}}, "base has ppo.gamma twice"),
        ({"base": {"run_dir": "x"}, "grid": GRID}, "base cannot have run_dir"),
        ({"grid": {"seed": [1, 2]}}, "seed cannot be swept: members have seeds anyway"),
        ({"grid": {"quiet": [True]}}, "quiet cannot be swept"),
        ({"grid": {"run_dir": ["a"]}}, "run_dir cannot be swept"),
        ({"grid": {"log_every": [1, 2]}}, "log_every cannot be swept: it does not change what is"),
        ({"grid": {"hosts": [1]}}, "hosts cannot be swept: it is an option of the sweep"),
        ({"grid": {"hosts": {"join": [True]}}}, "hosts cannot be swept"),
        ({"random": {"hosts.processes": {"choice": [2]}}}, "hosts.processes cannot be swept"),
        ({"grid": GRID, "base": {"hosts": {"join": True}}}, "base cannot have hosts.join: it is"),
        ({"grid": {1: [2]}}, "not by 1"),
        ({"grid": {"lr": 1e-3}}, "grid.ppo.lr=0.001 is not a list"),
        ({"grid": {"lr": []}}, "grid.ppo.lr has no values"),
        ({"grid": {"lr": [1e-3, "1e-3"]}}, "grid.ppo.lr has 0.001 twice"),
        ({"grid": GRID, "random": {"lr": {"choice": [1]}}}, "ppo.lr is in grid and in random"),
        ({"random": {"lr": [1, 2]}}, "random.ppo.lr=[1, 2] must say how it is drawn"),
        ({"random": {"lr": {"normal": [0, 1]}}}, "unknown way to draw ppo.lr 'normal'"),
        ({"random": {"lr": {"uniform": 3}}}, "random.ppo.lr.uniform=3 is not like [low, high]"),
        ({"random": {"lr": {"uniform": [1, 2, 3]}}}, "uniform=[1, 2, 3] is not like"),
        ({"random": {"lr": {"uniform": ["a", 2]}}}, "random.ppo.lr.uniform.0='a' is refused"),
        ({"random": {"lr": {"uniform": [1, float("inf")]}}}, "finite number"),
        ({"random": {"lr": {"choice": []}}}, "random.ppo.lr.choice has no values"),
        ({"random": {"lr": {"uniform": [2, 1]}}}, "bounds are reversed, 2 is more than 1"),
        ({"random": {"lr": {"log_uniform": [0, 1]}}}, "bounds above 0, not 0"),
        ({"random": {"gamma": {"uniform": [0.9, 1.5]}}}, "but ppo.gamma is at most 1"),
        ({"random": {"lr": {"uniform": [-1, 1]}}}, "but ppo.lr is at least 0"),
        ({"random": {"n_embd": {"uniform": [8, 64]}}}, "each value of net.n_embd compiles anew"),
        ({}, "there is nothing to sweep"),
        ({"grid": GRID, "seeds": 0}, "seeds=0 is refused"),
        ({"grid": GRID, "halving": True, "pbt": True}, "exclude each other"),
        ({"grid": {"n_embd": [8, 16]}, "pbt": True}, "pbt cannot change net.n_embd"),
        ({"seeds": 4, "pbt": True}, "pbt has nothing to change"),
        ({"grid": GRID, "pbt": True, "confirm_seeds": 2}, "confirm_seeds=2 cannot go with pbt"),
        ({"grid": GRID, "resume": "x", "resolved": {"shared": 3}}, "resolved.shared=3 is refused"),
        ({"grid": GRID, "preset": "no.yaml"}, "'no.yaml' cannot be read"),
        ({"grid": GRID, "preset": 3}, "preset=3 is not a path"),
    ],
)
def test_faults_are_told_in_a_sentence(values, words):
    with pytest.raises(ConfigError) as refused:
        build(values)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--grid lr", "'lr' is not of the form name=value,value"),
        ("--grid lr=", "'lr=' is not of the form"),
        ("--grid lr=[1", "cannot be read as a value"),
        ("--grid lr=1 lr=2", "lr is given twice"),
        ("--grid lr=1 ppo.lr=2", "--grid has ppo.lr twice"),
        ("--random lr=uniform", "random.ppo.lr.uniform=[] is not like [low, high]"),
        ("--base total_step=3 --seeds 2", "did you mean 'total_steps'?"),
        ("--grid hosts=1,2", "hosts cannot be swept"),
        ("--sample 2", "did you mean --samples?"),
        ("no.yaml", "'no.yaml' cannot be read"),
    ],
)
def test_faults_of_command_lines(arguments, words):
    with pytest.raises(ConfigError) as refused:
        parse(arguments.split())
    assert words in str(refused.value)


def test_seeds_alone_are_a_sweep():
    assert build({"seeds": 2}).names == ()


def test_short_names_are_of_one_option_each():
    assert {*short_names().values(), WORLD} == OPTIONS.keys()


def test_options_are_flat_and_nested_again():
    options = {"seed": 1, "ppo": {"lr": 2.0, "gamma": 0.5}, "env_options": {"num_agents": 3}}
    assert nested(flat(options, "base")) == options


WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["lr", "gamma", "uniform", "choice", "x"]), inner)
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(["base", "grid", "random", "seeds", "preset", "x"]), WILD))
def test_wild_sweeps_are_built_or_refused_never_more(values):
    with contextlib.suppress(ConfigError):  # any other exception fails the test
        build(values)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(max_size=40) | st.sampled_from(["grid: &a [*a]", "grid: &a {lr: *a}", "? [a]\n: c"]))
def test_any_file_is_read_or_refused_never_more(content):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "sweep.yaml"
        path.write_text(content, encoding="utf-8")
        with contextlib.suppress(ConfigError):
            parse([str(path), "--seeds", "2"])
