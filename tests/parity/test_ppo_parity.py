"""Continuous PPO against PyTorch: network, losses, gradients, and whole updates with their stop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from benchmarks.torch_baseline import ppo as reference
from jmarl.algorithms.actor_critic import make_actor_critic
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.learning.collectives import Layout
from jmarl.learning.minibatches import Batch
from jmarl.learning.update import LearnerState
from jmarl.types import PolicyInput

T, E, OBS = 6, 4, 3  # of gymnax's Pendulum
EPOCHS, MINIBATCHES = 5, 3


def models(actor_hidden=(5,), critic_hidden=(7, 3), **ppo):
    """Trainer and hyperparameters, torch agent, and its parameters in jmarl's form."""
    options = {"epochs": EPOCHS, "num_minibatches": MINIBATCHES, "entropy_coef": 0.01, **ppo}
    config = build(
        {
            "algorithm": "ppo",
            "num_envs": E,
            "rollout_length": T,
            "net": {"hidden": actor_hidden, "critic_hidden": critic_hidden},
            "ppo": options,
        }
    )
    trainer, hyper = make_trainer(config)
    torch.manual_seed(0)
    agent = reference.Agent(OBS, 1, actor_hidden, critic_hidden).double()
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    given = {
        "clip_value": config.ppo.clip_value,
        "lr": config.ppo.lr,
        "entropy_coef": 0.01,
        "epochs": EPOCHS,
        "num_minibatches": MINIBATCHES,
        "target_kl": config.ppo.target_kl,
    }
    return trainer, hyper, agent, reference.Options(**given)


def converted(agent, part=lambda parameter: parameter.detach().numpy()):
    def layers(net):
        linear = [module for module in net if isinstance(module, torch.nn.Linear)]
        names = [f"dense_{i}" for i in range(len(linear) - 1)] + ["out"]
        return {
            name: {"kernel": part(module.weight).T, "bias": part(module.bias)}
            for name, module in zip(names, linear, strict=True)
        }

    actor = {**layers(agent.actor_mean), "log_std": part(agent.actor_logstd)[0]}
    return {"actor": actor, "critic": layers(agent.critic)}


def batches(agent, apart=0.3):
    """The same rows for both sides; old values and log-probabilities are those of another agent."""
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(T, E, 1, OBS)), rng.normal(size=(T, E, 1, 1))
    with torch.no_grad():
        policy = agent.policy(torch.tensor(obs))
        log_prob = policy.log_prob(torch.tensor(action)).numpy()
        value = agent.value(torch.tensor(obs)).numpy()
    log_prob += apart * rng.normal(size=log_prob.shape)
    value += apart * rng.normal(size=value.shape)
    advantage, target = rng.normal(size=(2, T, E, 1))
    ours = Batch(
        seen=PolicyInput(
            obs=jnp.asarray(obs),
            state=jnp.asarray(obs[:, :, 0]),
            action_mask=jnp.ones((T, E, 1, 1), bool),
            episode_start=jnp.zeros((T, E)),
        ),
        start={"actor": (), "critic": ()},
        context=None,
        action=jnp.asarray(action),
        log_prob=jnp.asarray(log_prob),
        value=jnp.asarray(value),
        advantage=jnp.asarray(advantage),
        target=jnp.asarray(target),
        active=jnp.ones((T, E, 1)),
    )
    columns = (obs, action, log_prob[..., 0], value, advantage, target)
    theirs = reference.Rows(*(torch.tensor(x).reshape(T * E, *x.shape[3:]) for x in columns))
    return ours, theirs


def agree(ours, theirs, atol=1e-10):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol), ours, theirs)


def test_initial_gains():
    policy = make_actor_critic(
        build({"algorithm": "ppo"}), make_trainer(build({"algorithm": "ppo"}))[0].env.spec, (0,)
    )
    params = jax.jit(policy.init)(jax.random.key(0))
    for net, gain in (("actor", 0.01), ("critic", 1.0)):
        for name, expected in (("dense_1", 2**0.5), ("out", gain)):
            spread = np.linalg.svd(params[net][name]["kernel"], compute_uv=False)
            np.testing.assert_allclose(spread, expected, rtol=1e-4)
            np.testing.assert_array_equal(params[net][name]["bias"], 0)
    np.testing.assert_array_equal(params["actor"]["log_std"], 0)


@pytest.mark.parametrize("clip_value", [True, False])
def test_losses_and_gradients(clip_value, x64):
    trainer, hyper, agent, options = models(clip_value=clip_value)
    learner, (ours, theirs) = trainer.learners[0], batches(agent)

    def loss(params):
        minibatch_stats = learner.objective.minibatch_stats(ours)
        return learner.loss(hyper, params, None, ours, minibatch_stats)

    gradient, metrics = jax.jit(jax.grad(loss, has_aux=True))(converted(agent))
    expected = reference.losses(agent, theirs, options)
    expected["total_loss"].backward()
    for name, value in expected.items():
        agree(metrics[f"losses/{name}"], value.detach().numpy())
    assert 0.1 < expected["clipfrac"] < 0.9
    agree(gradient, converted(agent, lambda parameter: parameter.grad.numpy()))


@pytest.mark.parametrize(
    ("sizes", "target_kl", "epochs"),
    [(((5,), (7, 3)), 0.0, EPOCHS), (((4, 4), (6,)), 0.0, EPOCHS), (((5,), (7, 3)), 3e-4, None)],
)
def test_a_whole_update(sizes, target_kl, epochs, x64):
    """Rows in the same order on both sides; with a stop some epochs are left out."""
    trainer, hyper, agent, options = models(*sizes, target_kl=target_kl, lr=3e-3)
    (ppo,), (ours, theirs) = trainer.learners, batches(agent, apart=0.01)
    params = converted(agent)
    learner = LearnerState(params, ppo.optimiser.init(params), None)
    key = jax.random.key(4)
    learner, metrics = jax.jit(
        lambda learner: ppo.fit(learner, ours, key, hyper, hyper.lr, Layout())
    )(learner)
    keys = jax.random.split(jax.random.clone(key), EPOCHS)
    orders = [np.array(jax.random.permutation(k, T * E)) for k in keys]
    optimiser = torch.optim.Adam(agent.parameters(), lr=options.lr, eps=1e-5)
    last = reference.learn(agent, optimiser, theirs, iter(orders), options)
    assert metrics["losses/epochs"] == last["epochs"]
    assert last["epochs"] == epochs if epochs else 1 < last["epochs"] < EPOCHS
    agree(learner.params, converted(agent))
