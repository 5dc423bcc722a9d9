"""Files of torch: which belong to whom, what they become, and what is refused in one sentence."""

import pickle
import re
import sys
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from benchmarks.torch_baseline.ppo import Agent
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.learning.running_statistics import ValueNorm
from jmarl.runs import torch_files
from jmarl.runs.torch_checkpoints import (
    check_options,
    read_checkpoint,
    seen_options,
    state_arrays,
)
from tests.support import torch_actor_critic, torch_core, torch_mat
from tests.support.torch_weights import (
    mat_params,
    onpolicy_params,
    ppo_payload,
    xuance_weights,
)

OBS, A, N, H = 18, 5, 3, 8  # of simple_spread
ONPOLICY = {"algorithm": "mappo", "net": {"hidden": [H, H]}}
SEPARATED = {"algorithm": "mappo", "net": {"hidden": [H, H], "share": "none"}}
MAT = {"algorithm": "mat", "net": {"n_embd": H}}


def read(path, options, **more):
    """The arrays of a run that begins with the files."""
    config = build(options)
    trainer, _ = make_trainer(config)
    checkpoint = read_checkpoint(Path(path))
    check_options(checkpoint, config)
    return state_arrays(checkpoint, trainer.players, **more), trainer


def params_of(found, player=0):
    prefix = f"policies.{player}.params."
    return {n.removeprefix(prefix): x for n, x in found.items() if n.startswith(prefix)}


def agree(found, tree, player=0):
    """Bit for bit."""
    own = params_of(found, player)
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    expected = {".".join(key.key for key in path): leaf for path, leaf in leaves}
    assert own.keys() == expected.keys()
    for name, array in own.items():
        np.testing.assert_array_equal(array, expected[name])


def mat(**options):
    return torch_mat.MultiAgentTransformer(OBS, A, N, options.pop("blocks", 1), H, 1, **options)


def onpolicy(recurrent=False, obs=OBS):
    options = {"hidden": H, "recurrent": recurrent}
    actor = torch_actor_critic.Actor(obs, ("discrete", A), **options)
    return actor, torch_actor_critic.Critic(OBS * N, **options)


def save_onpolicy(directory, suffix="", **options):
    actor, critic = onpolicy(**options)
    torch.save(actor.state_dict(), directory / f"actor{suffix}.pt")
    torch.save(critic.state_dict(), directory / f"critic{suffix}.pt")
    return actor, critic


def test_wrapped_transformers(tmp_path, monkeypatch):
    """From a GPU; DataParallel's prefixes, half precision, the optimiser and the epoch in the
    file."""
    model = mat().half()
    state_dict = {f"module.{name}": x for name, x in model.state_dict().items()}
    optimiser = torch.optim.Adam(model.parameters()).state_dict()
    whole = {"model_state_dict": state_dict, "optimizer": optimiser, "epoch": 3}
    with monkeypatch.context() as gpu:
        gpu.setattr(torch.serialization, "location_tag", lambda storage: "cuda:7")
        torch.save(whole, tmp_path / "x.pt")
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(tmp_path / "x.pt", weights_only=True)
    found, trainer = read(tmp_path / "x.pt", MAT)
    agree(found, mat_params(model.float(), trainer.players[0].policy))
    assert not any("value_norm" in name for name in found)


def test_files_of_the_shared_runner(tmp_path):
    """In any order, or by their directory; a layer that on-policy once cloned and never called."""
    actor, critic = save_onpolicy(tmp_path, recurrent=True)
    dead = {"base.mlp.fc_h.0.weight": torch.zeros(H, H)}
    torch.save(actor.state_dict() | dead, tmp_path / "actor.pt")
    options = {"algorithm": "rmappo", "net": {"hidden": [H, H]}}
    for given in (tmp_path, f"{tmp_path / 'critic.pt'},{tmp_path / 'actor.pt'}"):
        found, trainer = read(given, options)
        agree(found, onpolicy_params(actor, critic, trainer.players[0].policy))


def test_an_actor_alone(tmp_path):
    actor, critic = save_onpolicy(tmp_path)
    with pytest.raises(ValueError, match=r"no weights of the critic.*init_parts"):
        read(tmp_path / "actor.pt", ONPOLICY)
    wanted = lambda player, name: name.startswith("actor.")  # noqa: E731
    found, trainer = read(tmp_path / "actor.pt", ONPOLICY, selected=wanted)
    agree(found, {"actor": onpolicy_params(actor, critic, trainer.players[0].policy)["actor"]})


def test_a_gaussian_in_a_world_of_discrete_actions(tmp_path):
    save_onpolicy(tmp_path)
    actor = torch_actor_critic.Actor(OBS, ("box", A), hidden=H)
    torch.save(actor.state_dict(), tmp_path / "actor.pt")
    with pytest.raises(ValueError, match=r"log_std of continuous actions.*actions='continuous'"):
        read(tmp_path, ONPOLICY)


def statistics_after_some_returns(kind, **given):
    """torch's running statistics, and returns in their units."""
    statistics = kind(**given)
    rng = np.random.default_rng(4)
    for _ in range(3):
        statistics.update(torch.tensor(rng.normal(-40, 25, (64, 1))))
    returns = rng.normal(-40, 25, 8)
    mean, std = (x.numpy() for x in statistics.moments())
    return statistics, returns, (returns - mean) / std


def value_norm(found, player=0):
    fields = ("mean", "variance", "mean_rest", "variance_rest", "updates")
    return ValueNorm(*(jnp.asarray(found[f"learners.{player}.value_norm.{x}"]) for x in fields))


def test_popart_critics_are_read_with_their_statistics(tmp_path, x64):
    """on-policy's PopArt layer keeps four numbers beside its weight and bias."""
    _, critic = save_onpolicy(tmp_path)
    critic = critic.double()
    head = {"weight": critic.v_out.weight.data, "bias": critic.v_out.bias.data}
    popart, returns, normalised = statistics_after_some_returns(torch_core.PopArt, **head)
    saved = critic.state_dict() | {
        "v_out.stddev": torch.ones(1),
        "v_out.mean": popart.running_mean,
        "v_out.mean_sq": popart.running_mean_sq,
        "v_out.debiasing_term": popart.debiasing_term,
    }
    torch.save(saved, tmp_path / "critic.pt")
    found, _ = read(tmp_path, ONPOLICY)
    own = params_of(found)
    np.testing.assert_array_equal(own["critic.out.kernel"], popart.weight.numpy().T)
    np.testing.assert_array_equal(own["critic.out.bias"], popart.bias.numpy())
    np.testing.assert_allclose(value_norm(found).normalise(returns), normalised, atol=1e-10)
    headless = {name: x for name, x in saved.items() if not name.startswith("v_out.")}
    torch.save(headless, tmp_path / "critic.pt")  # `.to("cuda")` makes its parameters plain tensors
    with pytest.raises(ValueError, match="no output layer v_out"):
        read(tmp_path, ONPOLICY)


def test_files_of_the_separated_runner(tmp_path, x64):
    """A pair of networks and of statistics for each agent."""
    nets = [save_onpolicy(tmp_path, f"_agent{i}") for i in range(N)]
    kept, returns, normalised = statistics_after_some_returns(
        torch_core.ValueNorm, dtype=torch.float64
    )
    names = ("running_mean", "running_mean_sq", "debiasing_term")
    torch.save({name: getattr(kept, name) for name in names}, tmp_path / "vnrom_agent1.pt")
    found, trainer = read(tmp_path, SEPARATED)
    for i, (actor, critic) in enumerate(nets):
        agree(found, onpolicy_params(actor, critic, trainer.players[i].policy), i)
    np.testing.assert_allclose(value_norm(found, 1).normalise(returns), normalised, atol=1e-10)
    assert "learners.0.value_norm.mean" not in found

    with pytest.raises(ValueError, match=r"players: 3, not 1 .*net.share='none'"):
        read(tmp_path, ONPOLICY)
    (tmp_path / "critic_agent1.pt").unlink()
    with pytest.raises(ValueError, match="no weights of the critic"):
        read(tmp_path, SEPARATED)
    (tmp_path / "actor_agent1.pt").unlink()
    (tmp_path / "vnrom_agent1.pt").unlink()
    with pytest.raises(ValueError, match="players: 2, not 3"):
        read(tmp_path, SEPARATED)


def test_a_directory_for_each_team(tmp_path):
    nets = {}
    for team, obs in (("good", 14), ("adversary", 16)):
        (tmp_path / team).mkdir()
        nets[team] = torch_mat.MultiAgentTransformer(obs, A, 4, 1, H, 1)
        torch.save(nets[team].state_dict(), tmp_path / team / "transformer.pt")
    found, trainer = read(tmp_path, MAT | {"env": "mpe/simple_tag"})
    for i, player in enumerate(trainer.players):
        agree(found, mat_params(nets[player.name], player.policy), i)
    with pytest.raises(ValueError, match="players: 1, not 2"):
        read(tmp_path / "good", MAT | {"env": "mpe/simple_tag"})


def test_files_of_xuance(tmp_path):
    """In 2023 one network for all; of version 1 a key for each, with the optimiser and random
    states beside them."""
    options = {"n_agents": N, "normalize": False}
    actor = torch_actor_critic.XuanceNet(OBS, (H,), (H,), A, **options)
    critic = torch_actor_critic.XuanceNet(OBS * N, (H,), (9, H), 1, **options)
    weights = {n: torch.from_numpy(x) for n, x in xuance_weights(actor, critic).items()}
    torch.save(weights, tmp_path / "2023.pth")
    later = {}
    for name, x in weights.items():
        module, _, rest = name.partition(".")
        module = {"representation": "actor_representation",
                  "representation_critic": "critic_representation"}.get(module, module)  # fmt: skip
        later[f"{module}.agent_0.module.{rest.replace('pi_logits', 'model')}"] = x
    random = {"rng_state": torch.get_rng_state(), "cuda_rng_state": []}
    adam = torch.optim.Adam(actor.parameters()).state_dict()
    torch.save({"policy": later, "optimizer": adam} | random, tmp_path / "1.pth")
    net = {
        "hidden": [H], "head_hidden": [H], "critic_head_hidden": [9, H], "agent_id": "features",
        "input_norm": False, "layer_norm": False,
    }  # fmt: skip
    before, _ = read(tmp_path / "2023.pth", {"algorithm": "mappo", "net": net})
    after, _ = read(tmp_path / "1.pth", {"algorithm": "mappo", "net": net})
    np.testing.assert_array_equal(
        params_of(before)["critic.out.kernel"], critic.out.weight.detach().numpy().T
    )
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])
    seen = seen_options(read_checkpoint(tmp_path / "1.pth"), "mappo")
    assert seen["net.critic_head_hidden"] == (9, H)
    assert seen["net.agent_id"] == "features"


def test_files_of_the_ppo_trainer(tmp_path):
    """Statistics of observations are read where someone has added them."""
    agent = Agent(3, 1, (H,), (9, H))
    payload = ppo_payload(agent)
    moments = {"mean": torch.ones(3), "var": torch.full((3,), 2.0), "count": torch.tensor(40.0)}
    torch.save(payload | {"obs_rms": moments}, tmp_path / "ppo_best.pt")
    options = {"algorithm": "ppo", "net": {"hidden": [H], "critic_hidden": [9, H]}}
    found, _ = read(tmp_path / "ppo_best.pt", options)
    np.testing.assert_array_equal(
        params_of(found)["actor.log_std"], agent.actor_logstd.detach().numpy()[0]
    )
    np.testing.assert_array_equal(
        params_of(found)["critic.dense_1.kernel"], agent.critic[2].weight.detach().numpy().T
    )
    np.testing.assert_array_equal(found["policies.0.obs_stats.obs.variance"], [[2.0] * 3])
    np.testing.assert_array_equal(found["policies.0.obs_stats.obs.count"], [[40.0]])


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ({"dec_actor": True, "share_actor": True}, MAT, "algorithm='mat_dec'"),
        ({"dec_actor": True}, MAT, "algorithm='mat_dec', net.share_actor=False"),
        ({}, MAT | {"algorithm": "mat_dec"}, "algorithm='mat'"),
        ({"dec_actor": True}, MAT | {"algorithm": "mat_dec"}, "net.share_actor=False"),
        ({"blocks": 3}, MAT, "net.n_block=3"),
        ({}, MAT | {"net": {"n_embd": 32}}, "net.n_embd=8"),
    ],
)
def test_a_refusal_names_the_options_that_fit(model, options, words, tmp_path):
    torch.save(mat(**model).state_dict(), tmp_path / "x.pt")
    with pytest.raises(ValueError, match=rf"does not fit this run, but one with {words}\.$"):
        read(tmp_path / "x.pt", options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": "rmappo"}, "algorithm='mappo', net.hidden=(8, 8), net.critic_hidden=(8, 8)"),
        (ONPOLICY | {"algorithm": "ippo"}, "(8, 54), but this policy needs (8, 18)"),
        (ONPOLICY | {"net": {"hidden": [H, H], "layer_norm": False}}, "net.layer_norm=False"),
        (ONPOLICY | {"net": {"hidden": [H, H], "agent_id": "features"}}, "net.agent_id='features'"),
        (ONPOLICY | {"actions": "continuous"}, "net.distribution='tanh' does not go with"),
        (ONPOLICY | {"env": "mpe/simple_tag"}, "players: 1, not 2"),
    ],
)
def test_runs_with_other_networks_than_onpolicy_are_refused(options, words, tmp_path):
    save_onpolicy(tmp_path)
    with pytest.raises(ValueError, match=re.escape(words)):
        read(tmp_path, options)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("encoder.ln.bias"), "lacks encoder.ln.bias"),
        (lambda d: d.update({"encoder.extra": torch.zeros(2)}), "unknown weights encoder.extra"),
        (lambda d: d.update({"encoder.ln.bias": torch.zeros(3)}), r"shape \(3,\).*needs \(8,\)"),
        (lambda d: d["encoder.ln.bias"].fill_(torch.nan), "NaN or infinity in encoder.ln.bias"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change, words, tmp_path):
    state_dict = dict(mat().state_dict())
    change(state_dict)
    torch.save(state_dict, tmp_path / "x.pt")
    with pytest.raises(ValueError, match=words):
        read(tmp_path / "x.pt", MAT)


class Danger:
    """What an unpickler runs."""

    def __reduce__(self):
        return Path.touch, (Path("unpickled"),)


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"w": Danger()}, "inside.pt")
    torch.save(torch.nn.Linear(2, 2), "module.pt")
    Path("plain.pt").write_bytes(pickle.dumps(Danger()))
    for name, words in (
        ("inside", r"pickled objects \(\w+\), which .*: save model.state_dict\(\) instead\.$"),
        ("module", r"pickled objects \(torch.nn.modules.linear.Linear\)"),
        ("plain", "'plain.pt' (has pickled objects|is not a state_dict)"),
    ):
        with pytest.raises(ValueError, match=words):
            torch_files.read(Path(f"{name}.pt"))
    assert not Path("unpickled").exists()


def test_files_that_are_no_checkpoints_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.pt").write_bytes(b"not torch")
    Path("empty.pt").touch()
    with zipfile.ZipFile("zip.pt", "w") as archive:
        archive.writestr("x", "y")
    torch.save(torch.zeros(2), "tensor.pt")
    torch.save({"optimizer": {"state": torch.zeros(2)}}, "optimiser.pt")
    torch.save({"conv.weight": torch.zeros(2)}, "other.pt")
    for name, words in {
        "none.pt": "does not exist",
        "bad.pt": "not a state_dict",
        "empty.pt": "not a state_dict",
        "zip.pt": "not a state_dict",
        "tensor.pt": "but a Tensor",
        "optimiser.pt": "has no weights",
        "other.pt": "of none of the references",
    }.items():
        with pytest.raises(ValueError, match=words):
            read_checkpoint(Path(name))
    Path("two").mkdir()
    for name in ("a", "b"):
        torch.save(mat().state_dict(), f"two/{name}.pt")
    with pytest.raises(ValueError, match="checkpoints of the same network"):
        read_checkpoint(Path("two"))


def test_without_torch_a_sentence_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=r"pip install torch"):
        torch_files.read(Path("x.pt"))


def test_files_are_written_as_they_are_read(tmp_path):
    weights = {"critic": {"0.weight": np.ones((2, 3), np.float32)}, "log_std": np.zeros(2)}
    torch_files.write(tmp_path / "x.pt", weights)
    stored = torch.load(tmp_path / "x.pt", weights_only=True)
    assert stored["critic"]["0.weight"].dtype == torch.float32
    read = torch_files.read(tmp_path / "x.pt")
    assert sorted(read) == ["critic.0.weight", "log_std"]
