"""Checkpoints of torch become runs that every command accepts, and runs become checkpoints."""

import numpy as np
import pytest
import torch

import jmarl
from benchmarks.torch_baseline.ppo import Agent
from jmarl.commands import export, import_torch
from jmarl.runs.files import read_json, read_lines
from jmarl.runs.saved_parameters import saved_arrays
from tests.support.tiny_runs import resumed
from tests.support.torch_weights import ppo_payload

H = 8
SMALL = ["--num-envs", "4", "--rollout-length", "5", "--total-updates", "1", "--eval-episodes", "4"]
SMALL += ["--no-tensorboard", "--no-gif", "--ppo.epochs", "1", "--ppo.num-minibatches", "1"]
STILL = ["--ppo.lr", "1e-30"]  # Adam's steps are then too small to change a parameter
pytestmark = pytest.mark.usefixtures("unwatched")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What the PPO trainer saves, and a twin of its networks."""
    path = tmp_path_factory.mktemp("torch")
    torch.manual_seed(0)
    agent = Agent(4, 5, (H,), (9, H))  # mpe/simple
    with torch.no_grad():
        for parameter in agent.parameters():  # as after training, none is 0
            parameter += 0.3 * torch.randn_like(parameter)
    torch.save(ppo_payload(agent), path / "ppo_best.pt")
    return path / "ppo_best.pt", agent


@pytest.mark.filterwarnings("default")
def test_a_checkpoint_becomes_a_run_and_a_checkpoint_again(files, called, tmp_path):
    """It is scored at once, acts as torch does, trains on, and goes back bit for bit, now with the
    statistics of observations that the trainer does not save."""
    file, agent = files
    path = tmp_path / "x"
    world = ["--algorithm", "ppo", "--env", "mpe/simple", "--actions", "continuous"]
    code, said = called(import_torch, file, *world, "--run-dir", path, *SMALL, *STILL)
    assert code == 0, said
    assert "no statistics of observations" in said
    assert f"run: {path}" in said
    policy = jmarl.load_policy(path)
    assert policy.config.net.critic_hidden == (9, H)  # seen in the file
    obs = np.random.default_rng(0).normal(size=(5, 1, 4)).astype(np.float32)
    moments = policy.policies[0].obs_stats.obs
    normalised = torch.from_numpy(np.array(moments.normalise(obs)[:, 0]))
    mean = agent.actor_mean(normalised).detach().numpy()
    np.testing.assert_allclose(policy.act(obs).action[:, 0], mean, atol=1e-6)
    (line,) = read_lines(path / "evals.jsonl")
    assert (line["update"], line["eval/length_mean"]) == (0, 25)
    assert read_json(path / "versions.json")["init_from"]["reference"] == "ppo"
    assert path.joinpath("checkpoints/update_0").is_dir()

    resumed(path)
    assert [entry["update"] for entry in read_lines(path / "evals.jsonl")] == [0, 1, 1]
    again = read_lines(path / "evals.jsonl")[0]
    assert again["eval/return_mean"] == pytest.approx(line["eval/return_mean"], rel=1e-5)

    code, said = called(export, path, "--format", "torch", "--which", "latest")
    assert code == 0, said
    stored = torch.load(path / "torch" / "ppo_best.pt", weights_only=True)
    for network in ("actor_mean", "critic"):
        for name, tensor in getattr(agent, network).state_dict().items():
            assert torch.equal(stored[network][name], tensor), name
    assert torch.equal(stored["actor_logstd"], agent.actor_logstd.detach())
    count = saved_arrays(path, "latest").arrays["policies.0.obs_stats.obs.count"]
    assert stored["obs_rms"]["count"].item() == pytest.approx(float(count.item()))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "algorithm='mat' does not go with this checkpoint of ppo: choose 'ppo' or 'ippo'"),
        (["--algorithm", "ppo", "--net.hidden", "7"], "but one with net.hidden=(8,)"),
        (["--algorithm", "ppo", "--resume", "x"], "resume='x' cannot go with files to import"),
        (["--algorithm", "ppo", "--env", "mpe/simple"], "choose one of continuous actions"),
        (["--algorithm", "ppo", "--env", "gymnax/Pendulum-v1"], "shape (8, 4)"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(words, told, files, called, tmp_path):
    path = tmp_path / "x"
    code, said = called(import_torch, files[0], "--run-dir", path, *words)
    assert (code, said.count("\n")) == (2, 1), said
    assert told in said
    assert not path.exists()
