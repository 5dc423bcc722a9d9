"""Weights of the references, both ways: bit for bit, and the same outputs in torch.

torch's modules of tests/support carry the references' names, dead weights and masks included.
"""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax.traverse_util import unflatten_dict

from benchmarks.torch_baseline import ppo as torch_ppo
from jmarl.envs.spaces import Box, Discrete, MultiDiscrete
from jmarl.learning.running_statistics import RunningMoments, ValueNorm
from jmarl.networks.torso import Shape
from jmarl.policies.mat import MatPolicy
from jmarl.references.base import to_params, to_weights
from jmarl.references.catalogue import fitting
from jmarl.references.mat import MAT
from jmarl.references.onpolicy import ON_POLICY
from jmarl.references.ppo import PPO
from jmarl.references.statistics import (
    obs_moments,
    obs_moments_of,
    value_norm_of,
    value_sums,
)
from jmarl.references.xuance import XUANCE, of_key, version_1_keys, with_key
from jmarl.types import PolicyInput
from tests.support import torch_actor_critic, torch_core, torch_mat
from tests.support.parts import FORGETFUL, actor_critic
from tests.support.torch_weights import xuance_places

N, OBS, A, H, B = 3, 7, 4, 16, 5
SPACES = {
    "discrete": Discrete(A),
    "multi": MultiDiscrete((2, 3)),
    "box": Box.uniform(-1, 1, 2),
}
MAT_CASES = [
    ("mat", "Discrete"), ("mat", "Continuous"), ("mat_dec", "Discrete"),
    ("mat_dec, unshared", "Continuous"), ("mat_encoder", "Continuous"),
    ("mat_decoder", "Discrete"), ("mat_gru", "Continuous"),
]  # fmt: skip


def mat_twins(variant, kind):
    name, _, unshared = variant.partition(", ")
    variants = {
        "mat": torch_mat.MultiAgentTransformer,
        "mat_dec": torch_mat.MultiAgentTransformer,
        "mat_encoder": torch_mat.MatEncoder,
        "mat_decoder": torch_mat.MatDecoder,
        "mat_gru": torch_mat.MatGru,
    }
    more = {"dec_actor": True, "share_actor": not unshared} if name == "mat_dec" else {}
    model = variants[name](OBS, A, N, 2, H, 2, kind, **more).double()
    space = Box.uniform(-1, 1, A) if kind == "Continuous" else Discrete(A)
    return model, MatPolicy((OBS,) * N, space, H, 2, 2, name, not unshared)


def onpolicy_twins(kind, layers):
    action = {"discrete": ("discrete", A), "multi": ("multi", (2, 3)), "box": ("box", 2)}[kind]
    options = {"hidden": H, "recurrent": layers > 0, "layer_n": 2}
    actor = torch_actor_critic.Actor(OBS, action, **options).double()
    critic = torch_actor_critic.Critic(OBS * N, **options).double()
    if layers > 1:
        actor.rnn, critic.rnn = (
            torch_actor_critic.DeepRnnLayer(H, layers).double() for _ in range(2)
        )
    shape = Shape(hidden=(H,) * 3, recurrent=layers > 0, gru_layers=max(layers, 1))
    return actor, critic, actor_critic((OBS,) * N, 1, SPACES[kind], shape)


def xuance_twins(kind, recurrent, normalize):
    space = SPACES[kind]
    options = {"n_agents": N, "normalize": normalize, "recurrent": recurrent}
    log_std = -1.0 if kind == "box" else None
    actor = torch_actor_critic.XuanceNet(OBS, (H, H), (8,), space.size, log_std=log_std, **options)
    critic = torch_actor_critic.XuanceNet(OBS * N, (H, H), (9, 8), 1, **options)
    shape = Shape(
        (H, H), (8,), input_norm=recurrent and normalize, layer_norm=normalize,
        recurrent=recurrent, gru_norm=normalize,
    )  # fmt: skip
    policy = actor_critic(
        (OBS,) * N, 1, space, shape, critic_head_hidden=(9, 8), agent_id="features"
    )
    return actor.double(), critic.double(), policy


def ppo_twins():
    agent = torch_ppo.Agent(OBS, 2, (8,), (9, 8)).double()
    shape = Shape((8,), activation="tanh", input_norm=False, layer_norm=False)
    policy = actor_critic((OBS,), 1, SPACES["box"], shape, critic_input="own")
    return agent, replace(
        policy, critic=replace(policy.critic, shape=replace(shape, hidden=(9, 8)))
    )


def there_and_back(reference, policy):
    """The weights of random parameters, which are what is then read, bit for bit. As after
    training, none is 0 or 1."""
    rng = np.random.default_rng(0)
    first = policy.init(jax.random.key(0))
    params = jax.tree.map(lambda x: np.asarray(x) + 0.3 * rng.normal(size=x.shape), first)
    weights = to_weights(reference, params, policy)
    same_arrays(unflatten_dict(to_params(reference, weights, policy), sep="."), params)
    assert fitting([policy]) is reference
    return params, weights


def same_arrays(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)


def load(module, weights):
    """As the references do: every name must be there, and no other."""
    module.load_state_dict({name: torch.from_numpy(x) for name, x in weights.items()})


def without(prefix, weights):
    return {n.removeprefix(prefix): x for n, x in weights.items() if n.startswith(prefix)}


def outputs_agree(policy, params, obs, action, log_prob, value):
    seen = PolicyInput(jnp.asarray(obs), jnp.zeros((len(obs), 1)), None)
    start = () if isinstance(policy, MatPolicy) else FORGETFUL
    now = jax.jit(policy.evaluate)(params, start, None, seen, jnp.asarray(action))
    ours = now.log_prob.sum(-1) if log_prob.ndim < now.log_prob.ndim else now.log_prob
    np.testing.assert_allclose(ours, log_prob.detach(), rtol=0, atol=1e-10)
    np.testing.assert_allclose(now.value, value.detach(), rtol=0, atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize(("variant", "kind"), MAT_CASES)
def test_mat_there_and_back(variant, kind, x64):
    model, policy = mat_twins(variant, kind)
    params, weights = there_and_back(MAT, policy)
    load(model, weights)
    if (variant, kind) == ("mat", "Continuous"):
        rng = np.random.default_rng(1)
        obs, action = rng.normal(size=(B, N, OBS)), rng.normal(size=(B, N, A))
        log_prob, value, _ = model.evaluate(torch.tensor(obs), torch.tensor(action))
        outputs_agree(policy, params, obs, action, log_prob, value[..., 0])


@pytest.mark.long
@pytest.mark.parametrize(("kind", "layers"), itertools.product(SPACES, (0, 2)))
def test_onpolicy_there_and_back(kind, layers, x64):
    actor, critic, policy = onpolicy_twins(kind, layers)
    params, weights = there_and_back(ON_POLICY, policy)
    load(actor, without("actor.", weights))
    load(critic, without("critic.", weights))
    if (kind, layers) == ("multi", 0):
        rng = np.random.default_rng(1)
        obs, action = rng.normal(size=(B, N, OBS)), rng.integers(0, 2, (B, N, 2))
        log_prob, _, _ = actor.evaluate(torch.tensor(obs), None, torch.tensor(action), None)
        value, _ = critic(torch.tensor(obs.reshape(B, -1)))
        outputs_agree(policy, params, obs, action, log_prob, value.repeat(1, N))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "recurrent", "normalize"),
    [("discrete", False, False), ("box", False, True), ("discrete", True, True),
     ("box", True, False)],
)  # fmt: skip
def test_xuance_there_and_back(kind, recurrent, normalize, x64):
    """By the names of 2023, and by those of version 1, where every network has a key."""
    actor, critic, policy = xuance_twins(kind, recurrent, normalize)
    params, weights = there_and_back(XUANCE, policy)
    places = xuance_places(actor, critic)
    for net in (actor, critic):
        load(net, {places[n][1]: x for n, x in weights.items() if places[n][0] is net})
    keyed = with_key(weights, "agent_0")
    head = "mu" if kind == "box" else "model"
    assert {f"actor.agent_0.{head}.0.weight", "critic.agent_0.model.0.weight"} <= keyed.keys()
    assert (version_1_keys(keyed), version_1_keys(weights)) == (["agent_0"], [])
    same_arrays(of_key(keyed, "agent_0"), weights)
    if (kind, recurrent) == ("box", False):
        rng = np.random.default_rng(1)
        obs, action = rng.normal(size=(B, N, OBS)), rng.normal(size=(B, N, 2))
        joint = torch.tensor(obs.reshape(B, 1, -1).repeat(N, axis=1))
        log_prob = actor.distribution(actor(torch.tensor(obs))).log_prob(torch.tensor(action))
        outputs_agree(policy, params, obs, action, log_prob, critic(joint)[..., 0])


def test_ppo_there_and_back(x64):
    """In the file, networks are mappings and log_std is a row."""
    agent, policy = ppo_twins()
    params, weights = there_and_back(PPO, policy)
    load(agent, weights)
    rng = np.random.default_rng(1)
    obs, action = rng.normal(size=(B, 1, OBS)), rng.normal(size=(B, 1, 2))
    log_prob = agent.policy(torch.tensor(obs)).log_prob(torch.tensor(action))
    outputs_agree(policy, params, obs, action, log_prob, agent.value(torch.tensor(obs)))


@pytest.mark.parametrize("popart", [False, True])
def test_statistics_of_returns_there_and_back(popart):
    """In float32, and with the words that torch's statistics have."""
    norm = ValueNorm.create()
    reference = torch_core.ValueNorm(dtype=torch.float64)
    rng = np.random.default_rng(0)
    for _ in range(200):
        batch = rng.normal(-80, 3, (16, 1))
        norm = norm.update(jnp.float32(batch.mean()), jnp.float32(batch.var()))
        reference.update(torch.tensor(batch))
    sums = value_sums(vars(norm), popart)
    words = ("mean", "mean_sq", "debiasing_term") if popart else (
        "running_mean", "running_mean_sq", "debiasing_term")  # fmt: skip
    prefix = "critic.v_out." if popart else "value_norm."
    for word, theirs in zip(words, ("running_mean", "running_mean_sq", "debiasing_term"),
                            strict=True):  # fmt: skip
        np.testing.assert_allclose(sums[prefix + word], getattr(reference, theirs), rtol=1e-5)
    again = value_norm_of(sums)
    for name in ("mean", "variance", "updates"):
        np.testing.assert_array_equal(again[name], vars(norm)[name])
    assert value_norm_of({"actor.act.action_out.linear.weight": np.ones(2)}) is None


def test_statistics_of_observations_there_and_back():
    """Bit for bit, rounding errors included."""
    moments = RunningMoments.create((1, OBS), counts=(1, 1))
    for i in range(20):
        rows = np.random.default_rng(i).normal(3, 0.1, (8, 1, OBS))
        moments = moments.update(jnp.asarray(rows, jnp.float32))
    written = obs_moments(vars(moments))
    assert written["obs_rms.mean"].shape == (OBS,)
    read = obs_moments_of(written)
    for name, array in vars(moments).items():
        np.testing.assert_array_equal(read[name].reshape(array.shape), array)
    assert np.abs(read["mean_rest"]).max() > 0
