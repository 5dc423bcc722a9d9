"""Policies out of their runs: loaded, scored, exported."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jmarl
from jmarl.errors import ConfigError
from tests.support.tiny_runs import configured, go

TAKEN = """
import json, sys, zipfile
sys.modules["jmarl"] = sys.modules["flax"] = None
import jax, jax.numpy as jnp
from jax import export
archive = zipfile.ZipFile(sys.argv[1])
about = json.loads(archive.read("about.json"))
act = export.deserialize(bytearray(archive.read("greedy"))).call
memory = [jnp.zeros((5, *shape)) for shape in about["memory"]]
key = jax.random.key_data(jax.random.key(0))
obs = jnp.linspace(-1, 1, 5 * 3 * 18).reshape(5, 3, 18)
out = []
for fresh in (1.0, 0.0, 0.0):
    action, memory = act(obs, jnp.ones((5, 3, 5), bool), jnp.full(5, fresh), key, memory)
    out.append(action.tolist())
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A recurrent policy, whose memory matters."""
    path = tmp_path_factory.mktemp("run") / "rmappo"
    outcome = go(configured(path, "rmappo"))
    return path, outcome


def command(module, *arguments):
    done = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(done, capture_output=True, encoding="utf-8", timeout=300)


def test_a_policy_acts_on_one_world_or_many_and_remembers(run):
    path, _ = run
    policy = jmarl.load_policy(path, which="latest")
    obs = np.random.default_rng(0).normal(size=(6, 3, policy.spec.obs_size))
    many = policy.act(obs)
    assert many.action.shape == (6, 3)
    again = policy.act(obs, many.memory)
    one = policy.act(obs[2])
    np.testing.assert_array_equal(one.action, many.action[2])
    state = many.memory[0]["actor"]
    assert not np.allclose(state, again.memory[0]["actor"])
    void = policy.act(obs, many.memory, episode_start=np.ones(6))
    np.testing.assert_allclose(void.memory[0]["actor"], state, atol=1e-6)
    drawn = [policy.act(obs, key=jax.random.key(i), deterministic=False).action for i in range(3)]
    assert not np.array_equal(drawn[0], drawn[1]) or not np.array_equal(drawn[0], drawn[2])


def test_the_latest_policy_has_the_final_parameters(run):
    path, outcome = run
    policy = jmarl.load_policy(path, which="latest")
    jax.tree.map(np.testing.assert_array_equal, policy.policies, outcome.state.policies)


def test_masked_actions_are_not_chosen(run):
    policy = jmarl.load_policy(run[0])
    mask = np.zeros((3, 5), bool)
    mask[:, 3] = True
    action = policy.act(np.zeros((3, 18)), action_mask=mask).action
    np.testing.assert_array_equal(action, 3)


def test_misuse_is_explained(run, tmp_path):
    policy = jmarl.load_policy(run[0])
    with pytest.raises(ValueError, match=r"shape \(3, 17\); expected \(3, 18\)"):
        policy.act(np.zeros((3, 17)))
    with pytest.raises(ValueError, match="needs a key"):
        policy.act(np.zeros((3, 18)), deterministic=False)
    with pytest.raises(ConfigError, match="not a run"):
        jmarl.load_policy(tmp_path)
    with pytest.raises(ConfigError, match="which='newest'"):
        jmarl.load_policy(run[0], which="newest")


def test_an_exported_policy_acts_without_jmarl(run, tmp_path):
    path, _ = run
    out = tmp_path / "policy.zip"
    done = command("jmarl.export", path, "--out", out)
    assert done.returncode == 0, done.stderr
    taken = [sys.executable, "-c", TAKEN, str(out)]
    found = subprocess.run(taken, capture_output=True, encoding="utf-8", timeout=300)
    assert found.returncode == 0, found.stderr
    policy, memory = jmarl.load_policy(path), None
    obs = jnp.linspace(-1, 1, 5 * 3 * 18).reshape(5, 3, 18)
    for action in json.loads(found.stdout):
        expected, memory = policy.act(obs, memory)
        np.testing.assert_array_equal(action, expected)
    exported = jmarl.load_exported(out)
    key, mask = jax.random.key_data(jax.random.key(0)), jnp.ones((5, 3, 5), bool)
    start = [jnp.zeros((5, *shape)) for shape in exported.about["memory"]]
    action, _ = exported.greedy(obs, mask, jnp.ones(5), key, start)
    np.testing.assert_array_equal(action, policy.act(obs).action)


def test_evaluate_writes_figures_in_the_one_form(run, tmp_path):
    path, _ = run
    figures = tmp_path / "x.json"
    done = command("jmarl.evaluate", path, "--episodes", 8, "--world", "mpe2", "--json", figures)
    assert done.returncode == 0, done.stderr
    written = json.loads(figures.read_text(encoding="utf-8"))
    assert {row["case"] for row in written["rows"]} == {"greedy", "sampled"}
    assert {"return_mean", "return_iqm", "return_std", "length_mean"} <= {
        row["metric"] for row in written["rows"]
    }
    assert {row["subject"] for row in written["rows"]} == {"rmappo"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "not a run"),
        ([], "usage"),
        (["RUN", "--episodes", "0"], "episodes=0"),
        (["RUN", "--wich", "best"], "--which"),
        (["RUN", "--env-options", "num_agents", "4"], "does not fit"),
        (["RUN", "--world", "mpe2", "--env-options", "agent_ids", "True"], "agent_ids"),
    ],
)
def test_evaluate_refuses_in_one_sentence(arguments, words, run, monkeypatch, capsys):
    from jmarl.commands.evaluate import main

    line = [str(run[0]) if a == "RUN" else str(a) for a in arguments]
    monkeypatch.setattr("sys.argv", ["evaluate", *line])
    with pytest.raises(SystemExit) as stop:
        main()
    told = capsys.readouterr()
    assert (stop.value.code or 0) == (2 if arguments else 0)
    assert words in (told.err if arguments else told.out)


def test_training_in_memory_touches_no_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = configured(None, compilation_cache=False, total_updates=2)
    outcome = jmarl.train(config)
    assert outcome.state.update == 2
    assert outcome.metrics["update"].tolist() == [1, 2]
    assert outcome.evaluations["absolute"][-1]
    assert not list(tmp_path.iterdir())
