"""Runs that begin with what others have learned: what is taken, and what is refused by name."""

import re
import shutil
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import jmarl
from jmarl.algorithms.build import make_trainer
from jmarl.config import sweep_values
from jmarl.config.stored import read_stored
from jmarl.config.train_config import build, merged
from jmarl.execution.named_leaves import named_arrays
from jmarl.runs.checkpoint import Checkpoints
from jmarl.runs.files import CHECKPOINTS, CONFIG, read_json, write_json
from jmarl.runs.saved_parameters import saved_arrays
from jmarl.runs.warm_start import load_warm_start
from jmarl.sweeps.plan import plan
from jmarl.sweeps.run import run_sweep

STORED = Path(__file__).parents[1] / "support" / "stored_runs"
# Adam's steps are then too small to change a parameter
STILL = {"ppo": {"lr": 1e-30}}
pytestmark = pytest.mark.usefixtures("unwatched")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """MAT; recurrent MAPPO with two teams; PPO that normalises observations and rewards; two seeds
    of IPPO."""
    path = tmp_path_factory.mktemp("stored")
    with tarfile.open(STORED / "format_1.tar.gz") as archive:
        archive.extractall(path, filter="data")
    return path / "runs"


def like(run, **changes):
    """The configuration of a run, with changes."""
    alone = {"seeds": 1, "run_dir": None, "resume": None}
    return build(merged(read_stored(run / CONFIG) | alone, changes))


def begun(config, path=None):
    """What a run begins with, and its trainer."""
    trainer, _ = make_trainer(config)
    return load_warm_start(config, trainer, path), trainer


def quietly(config):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return begun(config)[0].arrays


def parameters(policies):
    """By the names of a state."""
    return {
        f"policies.{i}.params.{name}": np.asarray(x)
        for i, policy in enumerate(policies)
        for name, x in named_arrays(policy.params).items()
    }


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("name", "statistics"),
    [
        ("mat", r"learners\.0\.value_norm"),
        ("teams", r"learners\.[01]\.value_norm"),
        ("ppo", r"policies\.0\.obs_stats|learners\.0\.reward_scale\.moments"),
    ],
)
def test_parameters_and_running_statistics(name, statistics, runs):
    """Everything else begins anew: optimiser, worlds, keys, the count of updates."""
    run = runs / name
    (found, about), trainer = begun(like(run, init_from=run))
    checkpoints = Checkpoints(run / CHECKPOINTS, read_only=True)
    state = checkpoints.best(trainer.shapes).state
    checkpoints.close()
    known = {n: x for n, x in named_arrays(state).items() if re.match(statistics, n)}
    assert known
    same(found, parameters(state.policies) | known)
    assert (about["from"], about["which"], about["update"]) == (str(run), "best", 2)
    assert (len(about["digest"]), about["parts"]) == (64, "all")
    assert "policies.0.params" in about["loaded"]


@pytest.mark.parametrize("which", ["best", "latest"])
def test_a_member_of_a_group(which, runs):
    """Of its best parameters no statistics of returns are stored, which a sentence says."""
    run = runs / "seeds" / "seed_1"
    config = like(run, init_from=Path(f"{run}:{which}"))
    policy = parameters(jmarl.load_policy(run, which=which).policies)
    if which == "best":
        with pytest.warns(UserWarning, match="no statistics of returns.*ppo.value_norm="):
            same(begun(config)[0].arrays, policy)
        return
    found = begun(config)[0].arrays
    assert found.keys() - policy.keys() == {n for n in found if "value_norm" in n}
    assert found["learners.0.value_norm.updates"] > 0
    same({name: found[name] for name in policy}, policy)


def test_parts(runs):
    run = runs / "seeds" / "seed_1"
    whole = set(quietly(like(run, init_from=run)))
    of = {
        part: set(quietly(like(run, init_from=Path(f"{run}:latest"), init_parts=part)))
        for part in ("actor", "critic", "encoder")
    }
    assert of["actor"] == {name for name in whole if ".actor." in name}
    norm = {f"learners.0.value_norm.{x}" for x in
            ("mean", "variance", "mean_rest", "variance_rest", "updates")}  # fmt: skip
    assert of["critic"] == {name for name in whole if ".critic." in name} | norm
    assert of["encoder"] == {name for name in whole if ".out." not in name}
    mat = runs / "mat"
    encoder, decoder = (
        set(quietly(like(mat, init_from=mat, init_parts=part))) for part in ("encoder", "actor")
    )
    assert {name.split(".")[3] for name in encoder if "params" in name} == {"encoder"}
    assert {name.split(".")[3] for name in decoder} == {"decoder"}
    assert "learners.0.value_norm.mean" in encoder  # whose head gives the values


def test_other_worlds(runs):
    """Other options, and even other actions if the encoder alone is taken."""
    run = runs / "seeds" / "seed_1"
    options = {"local_ratio": 0.1}
    assert quietly(like(run, init_from=run, env_options=options))
    with pytest.raises(ValueError, match=r"actor.log_std is absent, not \(5,\).*actions was None"):
        begun(like(run, init_from=run, actions="continuous"))
    assert quietly(like(run, init_from=run, actions="continuous", init_parts="encoder"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"env_options": {"num_agents": 4}},
         r"actor.dense_0.kernel is \(18, 8\), not \(24, 8\).*env_options was \{\}, now"),
        ({"net": {"hidden": [8, 8]}}, r"ln_1.bias is absent, not \(8,\).*net.hidden was \[8\]"),
        ({"net": {"share": "none"}}, r"players: 1, not 3 .*net.share was 'team'"),
        ({"net": {"activation": "tanh"}}, "net.activation='tanh' makes another network"),
        ({"init_parts": "decoder"}, "init_parts='decoder'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(changes, words, runs):
    run = runs / "seeds" / "seed_1"
    with pytest.raises(ValueError, match=words):
        begun(like(run, init_from=run, **changes))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nothing", r"'nothing' is not a run"),
        ("nothing.pt", r"'nothing.pt' does not exist"),
        ("seeds", r"has 2 seeds; choose one of them"),
        (".", r"'.' is not a run"),
    ],
)
def test_what_is_no_source_is_refused(given, words, runs, monkeypatch):
    monkeypatch.chdir(runs)
    with pytest.raises(ValueError, match=words):
        begun(like(runs / "mat", init_from=given))


def test_critics_of_transformers_are_their_encoders(runs):
    run = runs / "mat"
    with pytest.raises(ValueError, match=r"init_parts='critic' names no part.*decoder, encoder"):
        begun(like(run, init_from=run, init_parts="critic"))
    with pytest.raises(ValueError, match=r"init_parts='actor' needs init_from"):
        like(run, init_parts="actor")


def test_values_in_units_that_nobody_knows_are_told(runs):
    run = runs / "mat"
    with pytest.warns(UserWarning, match="ppo.value_norm='none' does not use"):
        begun(like(run, init_from=run, ppo={"value_norm": "none"}))


@pytest.mark.long
def test_members_begin_alike_and_a_resume_does_not_load_again(runs, tmp_path):
    """Two seeds, whose parameters stay what they were."""
    source = tmp_path / "source"
    shutil.copytree(runs / "seeds", source)
    given = Path(f"{source / 'seed_1'}:latest")
    path = tmp_path / "x"
    config = like(source, total_updates=1, gif=False, quiet=True, **STILL)
    jmarl.train(config, run_dir=path, init_from=given, seeds=2)
    expected = parameters(jmarl.load_policy(source / "seed_1", which="latest").policies)
    before = saved_arrays(source / "seed_1", "latest").arrays
    for seed in (0, 1):
        found = saved_arrays(path / f"seed_{seed}", "latest").arrays
        same({name: found[name] for name in expected}, expected)
        updates = "learners.0.value_norm.updates"
        assert found[updates] == before[updates] + 2  # epochs
        assert found["learners.0.opt_state.count"] == 2
    record = read_json(path / "versions.json")["init_from"]
    assert (record["from"], record["which"]) == (str(source / "seed_1"), "latest")

    again = like(path, init_from=given, seeds=2, resume=path)
    assert begun(again, path)[0] is None
    shutil.rmtree(path / CHECKPOINTS)  # as if it was killed before its first one
    assert begun(again, path)[0].about == record
    changed = read_json(path / "versions.json")
    changed["init_from"]["digest"] = "other"
    write_json(path / "versions.json", changed)
    with pytest.raises(ValueError, match="has changed since"):
        begun(again, path)


def test_in_memory_what_is_no_source_is_refused_before_training(runs):
    with pytest.raises(ValueError, match="'nothing' is not a run"):
        jmarl.train(like(runs / "mat"), init_from="nothing")


def test_a_sweep_is_refused_before_anything_is_on_disk(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = {"algorithm": "ippo", "net.hidden": [9], "init_from": str(runs / "seeds" / "seed_0")}
    base |= {"num_envs": 2, "rollout_length": 5, "total_updates": 1, "ppo.num_minibatches": 1}
    grid = {"ppo.lr": [1e-3, 1e-4]}
    sweep = sweep_values.build({"base": base, "grid": grid, "seeds": 1})
    with pytest.raises(ValueError, match=r"actor.dense_0.bias is \(8,\), not \(9,\)"):
        run_sweep(sweep, plan(sweep), Console(quiet=True))
    assert not list(tmp_path.iterdir())
