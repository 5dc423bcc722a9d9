"""jmarl from Python: what a run in memory gives, and the commands as functions."""

import inspect
import pydoc
import shutil

import jax
import numpy as np
import pytest
import yaml

import jmarl
from jmarl.commands import evaluate, export, render, report
from jmarl.errors import ConfigError
from jmarl.runs.columns import columns
from tests.support.tiny_runs import TINY, configured, resumed, same_runs, told

pytestmark = pytest.mark.usefixtures("unwatched")


@pytest.fixture(scope="module")
def outcome(unwatched):
    return jmarl.train(TINY, algorithm="ippo")


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory, unwatched):
    """The same run as the command writes it."""
    path = tmp_path_factory.mktemp("disk") / "run"
    return jmarl.train(TINY, run_dir=path, algorithm="ippo")


@pytest.fixture(scope="module")
def saved(outcome, tmp_path_factory):
    return outcome.save(tmp_path_factory.mktemp("saved") / "run")


def observations(policy, worlds=2):
    spec = policy.spec
    return np.random.default_rng(0).normal(size=(worlds, spec.num_agents, spec.obs_size))


def test_figures_are_columns_of_one_length(outcome):
    metrics, evaluations = outcome.metrics, outcome.evaluations
    assert metrics["update"].tolist() == [1, 2, 3, 4, 5, 6]
    assert metrics["update"].dtype == np.int64
    assert {x.shape for x in metrics.values()} == {(6,)}
    assert evaluations["update"].tolist() == [0, 2, 4, 6, 6]
    assert {x.shape for x in evaluations.values()} == {(5,)}
    assert np.isnan(evaluations["absolute/return_mean"]).tolist() == [True] * 4 + [False]
    assert type(metrics.to_dict()) is dict
    assert repr(metrics).startswith("Columns(6 rows: update, steps, ")


def test_columns_fill_what_lines_leave_out():
    made = columns([{"a": 1.5, "member": 0}, {"b": "x", "member": 1}, {"a": None, "b": "y"}])
    np.testing.assert_array_equal(made["a"], [1.5, np.nan, np.nan])
    assert made["b"].tolist() == [None, "x", "y"]
    np.testing.assert_array_equal(made["member"], [0, 1, np.nan])
    assert columns([]) == {}


def test_a_table_of_pandas_takes_columns(outcome):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(outcome.evaluations)
    assert table.shape == (5, len(outcome.evaluations))
    assert table["eval/return_mean"].notna().sum() == 4


def test_the_policy_acts_at_once_and_is_the_one_that_is_loaded(outcome, saved):
    obs = observations(outcome.policy, 7)
    assert outcome.policy.act(obs).action.shape == (7, 3)
    key = {"key": jax.random.key(1), "deterministic": False}
    for which in ("best", "latest"):
        loaded, held = jmarl.load_policy(saved, which), jmarl.load_policy(outcome, which)
        assert type(loaded) is type(held)
        np.testing.assert_array_equal(loaded.act(obs, **key).action, held.act(obs, **key).action)
    assert jmarl.load_policy(held) is held
    with pytest.raises(ConfigError, match="3 is neither the directory of a run nor what"):
        jmarl.load_policy(3)


def test_a_saved_run_is_the_one_that_the_command_writes(saved, on_disk, tmp_path):
    same_runs(saved, on_disk.path)
    names = {path.name for path in saved.iterdir()}
    assert names == {path.name for path in on_disk.path.iterdir()}
    copy = on_disk.save(tmp_path / "copied")
    same_runs(copy, saved)
    resumed(shutil.copytree(saved, tmp_path / "saved"), total_updates=7)
    assert told(tmp_path / "saved", "metrics.jsonl")[-1]["update"] == 7
    with pytest.raises(ConfigError, match="exists; choose another name"):
        on_disk.save(tmp_path / "copied")


def test_figures_of_a_run_on_disk_are_read_from_there(outcome, on_disk):
    for held, read in (
        (outcome.metrics, on_disk.metrics),
        (outcome.evaluations, on_disk.evaluations),
    ):
        assert held.keys() == read.keys()
        for name in held.keys() - {"seconds", "charts/SPS", "charts/compile_s"}:
            np.testing.assert_array_equal(held[name], read[name], err_msg=name)


def test_functions_and_commands_score_alike(outcome, saved, called):
    scored = jmarl.evaluate(outcome, 8, seed=3)
    code, said = called(evaluate, saved, "--episodes", 8, "--seed", 3)
    assert code == 0
    assert f"{scored['greedy']['return_mean']:.2f}" in said
    with pytest.raises(ConfigError, match="episodes=0"):
        jmarl.evaluate(saved, episodes=0)


def test_files_come_beside_the_run_or_into_the_current_directory(
    outcome, saved, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (page,) = jmarl.render(outcome, 1, gif=None)
    assert page.resolve() == tmp_path / "replay.html"
    assert jmarl.report([saved], replays=0) == [saved / "report.html"]
    assert jmarl.export(outcome.policy).resolve() == tmp_path / "policy.zip"
    assert jmarl.load_exported("policy.zip").about["algorithm"] == "ippo"
    with pytest.raises(ConfigError, match=r"has no directory; outcome\.save"):
        jmarl.report(outcome)


@pytest.mark.long
def test_seeds_are_saved_and_go_on_with_a_new_rate(tmp_path):
    ppo = {"epochs": 1, "num_minibatches": 1, "lr_schedule": "constant", "lr": 0.001}
    outcome = jmarl.train(configured(None, seeds=2, total_updates=2, ppo=ppo))
    assert outcome.metrics["member"].tolist() == [0, 0, 1, 1]
    with pytest.raises(ConfigError, match=r"has 2 seeds; choose one .*policies\[0\]"):
        _ = outcome.policy
    path = outcome.save(tmp_path / "x")
    for seed, held in enumerate(outcome.policies):
        obs, loaded = observations(held), jmarl.load_policy(path / f"seed_{seed}")
        np.testing.assert_array_equal(loaded.act(obs).action, held.act(obs).action)
    resumed = jmarl.train(resume=path, ppo={"lr": 0.0125}, total_updates=4, quiet=True)
    rates = resumed.metrics["charts/learning_rate"].reshape(2, 4)
    np.testing.assert_allclose(rates, [[0.001, 0.001, 0.0125, 0.0125]] * 2, rtol=1e-6)
    assert [load(own)["ppo"]["lr"] for own in path.glob("seed_*")] == [0.0125] * 2


def load(path):
    return yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))


def test_a_sweep_is_searched_from_python(tmp_path):
    base = {name: value for name, value in TINY.items() if name not in ("quiet", "gif")}
    base |= {"algorithm": "ippo", "total_updates": 2}
    whole = {"seeds": 1, "confirm_seeds": 0, "plots": False, "quiet": True}
    path = tmp_path / "x"
    searched = jmarl.sweep(whole, base=base, grid={"lr": [1e-3, 1e-2]}, sweep_dir=path)
    assert searched.path == path
    assert len(searched.ranking.members) == 2
    assert (path / "best.yaml").is_file()
    with pytest.raises(ConfigError, match="goes on as the sweep began"):
        jmarl.sweep(resume=path, seeds=2)


@pytest.mark.parametrize("command", [evaluate, render, export, report])
def test_functions_have_the_options_and_defaults_of_their_commands(command):
    function = getattr(jmarl, command.__name__.rpartition(".")[2])
    given = dict(inspect.signature(function).parameters)
    assert given.pop(next(iter(given))).default is inspect.Parameter.empty
    fields = dict(command.Options.model_fields)
    # Python has the figures and `record_episodes` already
    for written in ("json_path", "record", "record_path", "record_sampled", "minari"):
        fields.pop(written, None)
    defaults = {name: parameter.default for name, parameter in given.items()}
    assert defaults.keys() == fields.keys()
    chosen = {name: value for name, value in defaults.items() if value is not None}
    assert command.Options(**chosen) == command.Options()


def test_help_shows_the_public_names_and_no_others():
    text = pydoc.plain(pydoc.render_doc(jmarl))
    assert "outcome.save" in text
    for name in set(jmarl.__all__) - {"__version__"}:
        assert getattr(jmarl, name).__doc__, name
        assert f"\n    {name}(" in text or f"\n    class {name}(" in text, name
    assert dir(jmarl) == sorted(jmarl.__all__)
    for name in ("train", "evaluate", "render", "report", "export", "sweep"):
        assert inspect.isfunction(getattr(jmarl, name))
