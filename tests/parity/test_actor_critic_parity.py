"""MAPPO and IPPO against torch: on-policy's update and XuanCe's two, in every form of the loss.

Both sides have the same weights, rows and recorded actions. Compared are the losses and gradients
of the first of five steps of Adam, and the parameters after the last.
"""

import copy
import itertools
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from jmarl.algorithms.build import make_trainer
from jmarl.algorithms.ppo import make_optimiser
from jmarl.config.options import PpoConfig
from jmarl.config.train_config import build, read_preset
from jmarl.envs.spaces import Box, Discrete, MultiDiscrete
from jmarl.learning.collectives import Layout
from jmarl.learning.losses import masked_mean
from jmarl.learning.minibatches import Batch
from jmarl.learning.rollout import rollout
from jmarl.learning.running_statistics import ValueNorm
from jmarl.learning.update import LearnerState, gradient_step
from jmarl.networks.torso import Shape
from jmarl.policies.base import one_decision
from jmarl.types import PolicyInput, PolicyState
from tests.support import torch_actor_critic as reference
from tests.support import torch_core
from tests.support.parts import FORGETFUL, actor_critic, objective
from tests.support.parts import hyper as hyper_params
from tests.support.torch_weights import onpolicy_params

N, OBS, H, T, E = 3, 5, 8, 4, 6
STEPS, LR = 5, 7e-4  # of Adam
CLIP, VALUE_CLIP, VALUE_COEF, ENTROPY_COEF, DELTA = 0.1, 0.3, 0.7, 0.02, 1.0
ACTIONS = {
    "discrete": (("discrete", 4), Discrete(4)),
    "multi": (("multi", (2, 3)), MultiDiscrete((2, 3))),
    "box": (("box", 2), Box.uniform(0, 1, 2)),
}
FORMS = list(itertools.product([True, False], repeat=3))  # value clip, Huber, value norm


def rows(kind, seed=0, layers=1):
    """numpy `[T, E, N, …]`: what a rollout under a slightly different policy has left, with
    agents missing and episodes that begin within it. `layers`: of GRUs."""
    rng = np.random.default_rng(seed)
    space = ACTIONS[kind][1]
    available = np.ones((T, E, N, space.size), bool)
    action = rng.random((T, E, N, 2))
    if kind == "discrete":
        available = rng.random(available.shape) < 0.7
        available[..., 1] = True
        action = (rng.random(available.shape) * available).argmax(-1)
    elif kind == "multi":
        action = np.stack([rng.integers(0, n, (T, E, N)) for n in space.heads], axis=-1)
    components = {"discrete": 1, "multi": 2, "box": 2}[kind]
    return {
        "obs": rng.normal(size=(T, E, N, OBS)),
        "available": available,
        "action": action,
        "log_prob": rng.normal(-1.0, 0.3, (T, E, N, components)),
        "value": rng.normal(size=(T, E, N)),
        "return": rng.normal(1, 5, (T, E, N)),  # beyond δ on both sides
        "advantage": rng.normal(size=(T, E, N)),
        "active": (rng.random((T, E, N)) < 0.8).astype(float),
        "episode_start": (rng.random((T, E)) < 0.3).astype(float),
        "state": {
            "actor": rng.normal(size=(T, E, N, layers, H)),
            "critic": rng.normal(size=(T, E, N, layers, H)),
        },
    }


def ours(data, memory):
    """`memory`: before the first step, `[1, E, …]`, or that of policies without any."""
    array = jax.tree.map(jnp.asarray, data)
    seen = PolicyInput(
        array["obs"], jnp.zeros((T, E, 1)), array["available"], array["episode_start"]
    )
    names = ("action", "log_prob", "value", "advantage", "return", "active")
    return Batch(seen, memory, None, *(array[name] for name in names))


def updated(policy, params, batch, objective, hyper, clip_apart=False, optimiser=None):
    """`STEPS` of Adam: the first one's clipped gradient and metrics, and the last parameters. Of
    another optimiser there is no gradient."""
    adam = optimiser or optax.scale_by_adam(eps=1e-5)
    step = jax.jit(
        partial(
            gradient_step,
            batch=jax.tree.map(lambda x: x[None], batch),  # one piece
            minibatch_stats=objective.minibatch_stats(batch),
            prepare=partial(objective.prepare, policy),
            loss_fn=partial(objective.loss, policy, hyper),
            optimiser=adam,
            lr=LR,
            max_grad_norm=hyper.max_grad_norm,
            clip_apart=clip_apart,
        )
    )
    learner, metrics = step(LearnerState(params, adam.init(params), ValueNorm.create()))
    gradient = None
    if optimiser is None:
        gradient = jax.tree.map(lambda m: m / 0.1, learner.opt_state.mu)  # 1 - β₁ = 0.1
    for _ in range(STEPS - 1):
        learner, _ = step(learner)
    return gradient, metrics, learner.params


def gradients_of(nets):
    """Copies of the networks, with gradients in place of parameters."""
    copies = copy.deepcopy(nets)
    for net, copied in zip(nets, copies, strict=True):
        for parameter, place in zip(net.parameters(), copied.parameters(), strict=True):
            place.data = parameter.grad
    return copies


def agree(ours, theirs, atol=1e-10):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol, rtol=atol), ours, theirs)


def objective_of(clip_value, huber, norm, **form):
    return objective(
        inactive_targets=True,  # as the references
        value_loss="huber" if huber else "squared",
        clip_value=clip_value,
        value_norm="valuenorm" if norm else "none",
        **{"advantage_norm": "none"} | form,
    )


def value_norm_of(norm):
    return torch_core.ValueNorm(dtype=torch.float64) if norm else None


def flattened(x):
    """`[T, E, N, …]` → torch `(T, E·N, …)`."""
    return torch.as_tensor(x).reshape(T, E * N, *x.shape[3:])


# -- on-policy -------------------------------------------------------------------------------------


def onpolicy_models(kind, recurrent, central=True, layers=1):
    torch.manual_seed(0)
    action, space = ACTIONS[kind]
    options = {"hidden": H, "activation": "tanh", "recurrent": recurrent}
    actor = reference.Actor(OBS, action, **options).double()
    critic = reference.Critic(OBS * (N if central else 1), **options).double()
    if layers > 1:
        actor.rnn, critic.rnn = (reference.DeepRnnLayer(H, layers).double() for _ in range(2))
    reference.perturb(actor, seed=1)
    reference.perturb(critic, seed=2)
    shape = Shape(hidden=(H, H), activation="tanh", recurrent=recurrent, gru_layers=layers)
    critic_input = "all" if central else "own"
    policy = actor_critic((OBS,) * N, 1, space, shape, critic_input=critic_input)
    return actor, critic, policy


def onpolicy_batch(kind, data, recurrent, central=True):
    """The same rows for torch; a central critic's GRU state is one for the team."""
    batch = {
        name: flattened(data[name] if data[name].ndim > 3 else data[name][..., None])
        for name in ("obs", "action", "log_prob", "value", "return", "advantage", "active")
    }
    if kind == "discrete":
        batch["available"] = flattened(data["available"].astype(float))
    if kind == "box":  # one ratio for all dimensions
        batch["log_prob"] = batch["log_prob"].sum(-1, keepdim=True)
    joint = data["obs"].reshape(T, E, 1, -1).repeat(N, axis=2)
    batch["critic_in"] = flattened(joint) if central else batch["obs"]
    if recurrent:
        batch["masks"] = flattened(
            1 - data["episode_start"][..., None].repeat(N, axis=2)[..., None]
        )
        for part, state in data["state"].items():
            start = state[0]
            if part == "critic" and central:
                start = start[:, :1].repeat(N, axis=1)
            start = torch.as_tensor(start).flatten(0, 1)
            batch[f"{part}_h"] = start[:, 0] if start.shape[1] == 1 else start
    return batch


def memory_of(data, recurrent, central=True):
    if not recurrent:
        return FORGETFUL
    critic = data["state"]["critic"][:1, :, :1] if central else data["state"]["critic"][:1]
    return {"actor": jnp.asarray(data["state"]["actor"][:1]), "critic": jnp.asarray(critic)}


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("kind", ACTIONS)
def test_onpolicy_networks(kind, recurrent, x64):
    """Log-probs, entropies and values, with states that are reset within the sequence."""
    actor, critic, policy = onpolicy_models(kind, recurrent)
    data = rows(kind)
    batch = onpolicy_batch(kind, data, recurrent)
    params = onpolicy_params(actor, critic, policy)
    given = ours(data, memory_of(data, recurrent))
    start = jax.tree.map(lambda x: x[0], given.start)
    now = jax.jit(policy.evaluate)(params, start, None, given.seen, given.action)
    log_prob, entropy, _ = actor.evaluate(
        batch["obs"], batch.get("actor_h"), batch["action"], batch.get("masks"),
        batch.get("available"),
    )  # fmt: skip
    value, _ = critic(batch["critic_in"], batch.get("critic_h"), batch.get("masks"))
    ours_log_prob = now.log_prob.sum(-1, keepdims=True) if kind == "box" else now.log_prob
    ours_entropy = now.entropy if kind == "multi" else now.entropy.sum(-1)
    agree(ours_log_prob.reshape(log_prob.shape), log_prob.detach().numpy())
    agree(ours_entropy.reshape(entropy.shape), entropy.detach().numpy())
    agree(now.value.reshape(value.shape), value.detach().numpy())


@pytest.mark.parametrize("central", [True, False])
def test_onpolicy_update_with_two_gru_layers(central, x64):
    """recurrent_N = 2: networks, gradients and five steps of Adam, states reset in between."""
    compare_onpolicy_updates(
        *onpolicy_models("discrete", True, central, layers=2), rows("discrete", layers=2),
        "discrete", True, central, (True, True, True),
    )  # fmt: skip


def test_two_gru_layers_act_as_they_learn(x64):
    """Step by step from zero memory, reset where episodes begin, torch's outputs and states."""
    actor, critic, policy = onpolicy_models("box", True, layers=2)
    data = rows("box", layers=2)
    data["state"] = jax.tree.map(np.zeros_like, data["state"])
    batch, given = onpolicy_batch("box", data, True), ours(data, FORGETFUL)
    params = onpolicy_params(actor, critic, policy)
    act = jax.jit(partial(policy.act, deterministic=True))
    memory, means, values = policy.memory(E), [], []
    for t in range(T):
        seen = jax.tree.map(lambda x, t=t: x[t], given.seen)
        noise = one_decision(policy, jax.random.split(jax.random.key(t), E))
        memory, decision = act(params, noise, memory, seen)
        means.append(decision.action)
        values.append(decision.value)
    features, last = actor.features(batch["obs"], batch["actor_h"], batch["masks"])
    mean = actor.act.action_out(features).mean
    value, _ = critic(batch["critic_in"], batch["critic_h"], batch["masks"])
    agree(jnp.stack(means).reshape(mean.shape), mean.detach().numpy())
    agree(jnp.stack(values).reshape(value.shape), value.detach().numpy())
    agree(memory["actor"].reshape(last.shape), last.detach().numpy())


CASES = [(kind, False, True) for kind in ACTIONS] + [("discrete", True, True), ("box", True, False)]
ONPOLICY = [(*CASES[i % len(CASES)], form) for i, form in enumerate(FORMS)]


@pytest.mark.parametrize(("kind", "recurrent", "central", "form"), ONPOLICY)
def test_onpolicy_update(kind, recurrent, central, form, x64):
    """Two optimisers, two clips, both of them active."""
    nets = onpolicy_models(kind, recurrent, central)
    compare_onpolicy_updates(*nets, rows(kind), kind, recurrent, central, form)


def compare_onpolicy_updates(actor, critic, policy, data, kind, recurrent, central, form):
    clip_value, huber, norm = form
    batch = onpolicy_batch(kind, data, recurrent, central)
    objective = objective_of(*form, ratio="joint" if kind == "box" else "component",
                             entropy="mean" if kind == "multi" else "sum")  # fmt: skip
    hyper = hyper_params(
        clip_eps=CLIP, value_clip_eps=CLIP, value_coef=VALUE_COEF, entropy_coef=ENTROPY_COEF,
        max_grad_norm=0.05, huber_delta=DELTA,
    )  # fmt: skip
    params = onpolicy_params(actor, critic, policy)
    given = ours(data, memory_of(data, recurrent, central))
    gradient, metrics, after = updated(policy, params, given, objective, hyper, clip_apart=True)

    nets = actor, critic
    optimisers = [torch.optim.Adam(net.parameters(), lr=LR, eps=1e-5) for net in nets]
    statistics = value_norm_of(norm)

    def update():
        return reference.onpolicy_update(
            *nets, *optimisers, batch, CLIP, VALUE_COEF, ENTROPY_COEF, 0.05,
            DELTA if huber else None, clip_value, statistics,
        )  # fmt: skip

    losses = update()
    agree(gradient, onpolicy_params(*gradients_of(nets), policy))
    for name in ("policy_loss", "value_loss", "entropy"):
        agree(metrics[f"losses/{name}"], losses[name.removesuffix("_loss")])
    norms = losses["actor_grad_norm"], losses["critic_grad_norm"]
    assert min(norms) > 0.05
    agree(metrics["losses/grad_norm"], np.hypot(*norms))
    for _ in range(STEPS - 1):
        update()
    agree(after, onpolicy_params(*nets, policy))


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_onpolicy_update_with_weight_decay(name, x64):
    """torch's L2 penalty, added to gradients that are clipped already."""
    actor, critic, policy = onpolicy_models("discrete", recurrent=False)
    data = rows("discrete")
    hyper = hyper_params(
        clip_eps=CLIP, value_clip_eps=CLIP, value_coef=VALUE_COEF, entropy_coef=ENTROPY_COEF,
        max_grad_norm=0.05, huber_delta=DELTA,
    )  # fmt: skip
    _, _, after = updated(
        policy, onpolicy_params(actor, critic, policy), ours(data, FORGETFUL),
        objective_of(True, True, True), hyper, clip_apart=True,
        optimiser=make_optimiser(PpoConfig(optimiser=name, weight_decay=0.1)),
    )  # fmt: skip
    make = {
        "adam": partial(torch.optim.Adam, eps=1e-5),
        "sgd": partial(torch.optim.SGD, momentum=0.9),
    }[name]
    optimisers = [make(net.parameters(), lr=LR, weight_decay=0.1) for net in (actor, critic)]
    batch, statistics = onpolicy_batch("discrete", data, False), value_norm_of(True)
    for _ in range(STEPS):
        reference.onpolicy_update(
            actor, critic, *optimisers, batch, CLIP, VALUE_COEF, ENTROPY_COEF, 0.05, DELTA, True,
            statistics,
        )  # fmt: skip
    agree(after, onpolicy_params(actor, critic, policy))


@pytest.mark.parametrize("recurrent", [False, True])
def test_onpolicy_update_in_single_precision(recurrent):
    """Parameters after the same steps of Adam, jmarl in float32 and torch in float64."""
    actor, critic, policy = onpolicy_models("discrete", recurrent)
    data = rows("discrete")
    params = jax.tree.map(jnp.float32, onpolicy_params(actor, critic, policy))
    hyper = hyper_params(
        clip_eps=CLIP, value_clip_eps=CLIP, value_coef=VALUE_COEF, entropy_coef=ENTROPY_COEF,
        max_grad_norm=0.05, huber_delta=DELTA,
    )  # fmt: skip
    given = ours(data, memory_of(data, recurrent))
    objective = objective_of(True, True, True, ratio="component", entropy="sum")
    _, _, after = updated(policy, params, given, objective, hyper, clip_apart=True)
    assert {leaf.dtype for leaf in jax.tree.leaves(after)} == {np.dtype(np.float32)}
    batch, statistics = onpolicy_batch("discrete", data, recurrent), value_norm_of(True)
    optimisers = [torch.optim.Adam(net.parameters(), lr=LR, eps=1e-5) for net in (actor, critic)]
    for _ in range(STEPS):
        reference.onpolicy_update(
            actor, critic, *optimisers, batch, CLIP, VALUE_COEF, ENTROPY_COEF, 0.05, DELTA, True,
            statistics,
        )  # fmt: skip
    agree(after, onpolicy_params(actor, critic, policy), atol=1e-4)


@pytest.mark.long
def test_agents_apart_learn_as_in_the_separated_runner(x64):
    """The reference's preset for speaker and listener, unlike in what they see and do: a rollout,
    then five epochs. Every agent has a trainer of its own: networks, statistics, clips."""
    preset = read_preset(Path("configs/rmappo_reference_simple_speaker_listener.yaml"))
    preset |= {"num_envs": E, "rollout_length": T}
    preset["net"] |= {"hidden": [H, H]}
    preset["ppo"] |= {"epochs": STEPS, "max_grad_norm": 0.05}
    trainer, hyper = make_trainer(build(preset))
    state = jax.jit(trainer.init)(jax.random.key(0))
    nets, sizes = [], ((3, 3), (11, 5))  # observations and actions
    for i, (obs, actions) in enumerate(sizes):
        options = {"hidden": H, "activation": "relu", "recurrent": True}
        pair = (
            reference.Actor(obs, ("discrete", actions), **options).double(),
            reference.Critic(3 + 11, **options).double(),
        )
        nets.append([reference.perturb(net, seed=2 * i + j) for j, net in enumerate(pair)])
    policies = [group.policy for group in trainer.players]
    pairs = list(zip(nets, policies, strict=True))
    known = (PolicyState(onpolicy_params(*pair, policy)) for pair, policy in pairs)
    state = state.replace(policies=tuple(known))

    @jax.jit
    def play(state, key):
        keys = tuple(jax.random.split(key))
        return rollout(trainer.env, trainer.players, state, keys, T, (None, None), Layout())[:2]

    state, _ = play(state, jax.random.key(1))  # memories are not empty any more
    _, played = play(state, jax.random.key(2))
    for i, (pair, policy) in enumerate(pairs):
        learner, known = trainer.learners[i], state.learners[i]
        batch, _ = jax.jit(partial(learner.batch, hyper=hyper, layout=Layout()))(
            known.value_norm, played[i]
        )
        learn = partial(learner.learn, hyper=hyper, progress=jnp.zeros(()), layout=Layout())
        params, _, metrics = jax.jit(learn)(
            state.policies[i].params, known, played[i], jax.random.key(0)
        )
        seen = batch.seen
        joint = jnp.concatenate([p.seen.obs[:, :, 0] for p in played], axis=-1)
        given = {
            "obs": seen.obs[:, :, 0], "action": batch.action, "log_prob": batch.log_prob[:, :, 0],
            "value": batch.value, "return": batch.target, "advantage": batch.advantage,
            "active": batch.active, "critic_in": joint, "masks": 1 - seen.episode_start[..., None],
            "actor_h": batch.start["actor"][0, :, 0, 0],
            "critic_h": batch.start["critic"][0, :, 0, 0],
        }  # fmt: skip
        given = {name: torch.tensor(np.asarray(x)) for name, x in given.items()}
        optimisers = [torch.optim.Adam(net.parameters(), lr=7e-4, eps=1e-5) for net in pair]
        statistics = torch_core.ValueNorm(dtype=torch.float64)
        for _ in range(STEPS):
            losses = reference.onpolicy_update(
                *pair, *optimisers, given, 0.2, 1.0, 0.01, 0.05, 10.0, True, statistics
            )
        assert min(losses["actor_grad_norm"], losses["critic_grad_norm"]) > 0.05
        agree(params, onpolicy_params(*pair, policy))
        assert metrics["losses/epochs"] == STEPS


# -- XuanCe ----------------------------------------------------------------------------------------


def xuance_models(kind, recurrent, central, normalize=True, critic_head=(H,)):
    torch.manual_seed(0)
    space = ACTIONS[kind][1]
    log_std = -1.0 if kind == "box" else None
    options = {"n_agents": N, "normalize": normalize, "recurrent": recurrent}
    actor = reference.XuanceNet(OBS, (H,), (H,), space.size, log_std=log_std, **options).double()
    critic_in = OBS * (N if central else 1)
    critic = reference.XuanceNet(critic_in, (H,), critic_head, 1, **options).double()
    reference.perturb(actor, seed=1)
    reference.perturb(critic, seed=2)
    shape = Shape(
        (H,), (H,), input_norm=recurrent and normalize, layer_norm=normalize, gain=1.0,
        recurrent=recurrent, gru_norm=normalize,
    )  # fmt: skip
    policy = actor_critic(
        (OBS,) * N, 1, space, shape, critic_head_hidden=critic_head, agent_id="features",
        critic_input="all" if central else "own", log_std=-1.0, start_state="zero",
    )  # fmt: skip
    return actor, critic, policy


def xuance_params(actor, critic):
    """Flax layouts of XuanCe's layers."""

    def layer(module):
        weight = module.weight.detach().numpy()
        name = "scale" if isinstance(module, torch.nn.LayerNorm) else "kernel"
        return {name: weight.T, "bias": module.bias.detach().numpy()}

    def tree(net):
        made = {"out": layer(net.out)}
        for prefix, part in (("", net.representation), ("head_", net.head)):
            made[f"{prefix}dense_0"] = layer(part[0])
            if net.normalize:
                made[f"{prefix}ln_0"] = layer(part[2])
        if net.recurrent:
            if net.normalize:
                made |= {"input_norm": layer(net.input_norm), "gru_norm": layer(net.gru_norm)}
            gates = {name: p.detach().numpy() for name, p in net.gru.named_parameters()}
            made["gru"] = {
                f"{ours}_0": {
                    "kernel": gates[f"weight_{theirs}_l0"].T,
                    "bias": gates[f"bias_{theirs}_l0"],
                }
                for ours, theirs in (("input", "ih"), ("hidden", "hh"))
            }
        if net.log_std is not None:
            made["log_std"] = net.log_std.detach().numpy()
        return made

    return jax.tree.map(jnp.asarray, {"actor": tree(actor), "critic": tree(critic)})


def xuance_batch(kind, data, recurrent, central):
    """Feed-forward (B, N, ·), B = T·E; recurrent (E, N, T, ·) with one step more that is unused."""

    def arranged(x):
        if not recurrent:
            return torch.as_tensor(x).reshape(T * E, *x.shape[2:])
        return torch.as_tensor(np.moveaxis(x, 0, 2).copy())

    def longer(x):
        return torch.cat([x, x[:, :, -1:]], dim=2) if recurrent else x

    joint = data["obs"].reshape(T, E, 1, -1).repeat(N, axis=2)
    batch = {
        "obs": longer(arranged(data["obs"])),
        "critic_in": longer(arranged(joint if central else data["obs"])),
        "action": arranged(data["action"]),
        "log_prob": arranged(data["log_prob"].sum(-1)),
        "agent_mask": arranged(data["active"][..., None]),
        **{name: arranged(data[name][..., None]) for name in ("value", "return", "advantage")},
    }
    if kind == "discrete":
        batch["available"] = longer(arranged(data["available"].astype(float)))
    if recurrent:
        batch["filled"] = torch.as_tensor(data["active"][:, :, 0].T[..., None].copy())
    return batch


XUANCE = [
    (kind, recurrent, central, form)
    for recurrent in (False, True)
    for (kind, central), form in zip(
        itertools.cycle([("discrete", True), ("box", False), ("box", True), ("discrete", False)]),
        FORMS,
        strict=False,
    )
]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "recurrent", "central", "form"), XUANCE)
def test_xuance_update(kind, recurrent, central, form, x64):
    """MAPPO (central) and IPPO: one optimiser, one clip; a sum over agents when feed-forward."""
    nets = xuance_models(kind, recurrent, central)
    compare_xuance_updates(*nets, rows(kind), kind, recurrent, central, form)


@pytest.mark.parametrize("recurrent", [False, True])
def test_xuance_update_without_layer_norms(recurrent, x64):
    """As its presets for particle worlds have it, the critic's head wider than the actor's."""
    nets = xuance_models("discrete", recurrent, False, normalize=False, critic_head=(3 * H,))
    compare_xuance_updates(
        *nets, rows("discrete"), "discrete", recurrent, False, (True, True, False)
    )


def test_xuance_counts_all_advantages_of_a_minibatch(x64):
    """Also those of agents that were not there: its buffer does not know who was."""
    data = rows("box")
    data["advantage"] = data["advantage"] + 5 * (1 - data["active"])
    batch = xuance_batch("box", data, False, True)
    given = batch["advantage"]
    batch["advantage"] = (given - given.mean()) / (given.std(correction=0) + 1e-8)
    nets = xuance_models("box", False, True)
    form = {"advantage_norm": "minibatch", "advantage_eps": 1e-8, "advantage_entries": "all"}
    compare_xuance_updates(*nets, data, "box", False, True, (True, True, False), batch, **form)


def test_xuance_heads_start_as_torch_starts_them():
    """Layers after the representation: the quantiles of torch's own weights and biases; the
    representation itself is orthogonal of gain 1."""
    shape = Shape((128,), (128,), layer_norm=False, input_norm=False, gain=1.0,
                  head_init="torch_default")  # fmt: skip
    policy = actor_critic((OBS,) * N, 1, Discrete(4), shape, agent_id="features")
    params = jax.vmap(policy.init)(jax.random.split(jax.random.key(0), 40))
    torch.manual_seed(0)
    parts = np.linspace(0, 1, 11)
    for name, sizes in (("head_dense_0", (128 + N, 128)), ("out", (128, 4))):
        layers = [torch.nn.Linear(*sizes) for _ in range(400)]
        for ours, theirs in (("kernel", "weight"), ("bias", "bias")):
            drawn = np.quantile(params["actor"][name][ours], parts)
            expected = np.concatenate(
                [getattr(layer, theirs).detach().numpy().ravel() for layer in layers]
            )
            np.testing.assert_allclose(drawn, np.quantile(expected, parts), atol=0.02)
            assert np.abs(drawn).max() > 0.08  # nearly 1/√128 = 0.088, and a bias is not zero
    first = params["actor"]["dense_0"]
    assert not first["bias"].any()
    np.testing.assert_allclose(first["kernel"][0] @ first["kernel"][0].T, np.eye(OBS), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "actor", "critic"),
    [
        ("mappo", (18, (64,), (64, 64), 5), (54, (64,), (64, 64), 1)),
        ("ippo", (18, (64,), (64,), 5), (18, (64,), (256,), 1)),
    ],
)
def test_xuance_presets_have_the_references_layers(name, actor, critic):
    path = Path(__file__).parents[2] / "configs" / f"{name}_xuance_simple_spread.yaml"
    trainer, _ = make_trainer(build(read_preset(path)))
    (policy,) = (group.policy for group in trainer.players)
    assert policy.actor.shape.head_init == "torch_default"
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    log_std = -1.0 if name == "mappo" else None
    for part, sizes in (("actor", actor), ("critic", critic)):
        net = reference.XuanceNet(*sizes, n_agents=3, log_std=log_std if part == "actor" else None)
        ours = sorted(sorted(leaf.shape) for leaf in jax.tree.leaves(shapes[part]))
        assert ours == sorted(sorted(p.shape) for p in net.parameters())


def compare_xuance_updates(
    actor, critic, policy, data, kind, recurrent, central, form, batch=None, **other
):
    """`batch`: the rows for torch, if others than `data`; `other`: of the objective."""
    clip_value, huber, norm = form
    if recurrent:  # whole episodes from their start, filled up to some step alike for all agents
        data["episode_start"] = np.zeros((T, E))
        data["active"] = data["active"][:, :, :1].repeat(N, axis=2)
    if batch is None:
        batch = xuance_batch(kind, data, recurrent, central)
    reduction = "mean" if recurrent else "sum"
    objective = objective_of(
        *form, ratio="joint", squared_factor=1.0, agent_reduction=reduction, **other
    )
    hyper = hyper_params(
        clip_eps=CLIP, value_clip_eps=VALUE_CLIP, value_coef=VALUE_COEF, max_grad_norm=0.2,
        entropy_coef=ENTROPY_COEF, huber_delta=DELTA,
    )  # fmt: skip
    given = ours(data, memory_of(data, recurrent, central))
    params = xuance_params(actor, critic)
    gradient, metrics, after = updated(policy, params, given, objective, hyper)

    nets = actor, critic
    parameters = itertools.chain(*(net.parameters() for net in nets))
    optimiser = torch.optim.Adam(parameters, lr=LR, eps=1e-5)
    statistics = value_norm_of(norm)

    def update():
        return reference.xuance_update(
            *nets, optimiser, batch, CLIP, VALUE_CLIP, VALUE_COEF, ENTROPY_COEF, 0.2, huber,
            DELTA, clip_value, statistics, recurrent,
        )  # fmt: skip

    losses = update()
    agree(gradient, xuance_params(*gradients_of(nets)))
    for name in ("policy_loss", "value_loss", "entropy", "total_loss", "grad_norm"):
        agree(metrics[f"losses/{name}"], losses[name.removesuffix("_loss")])
    assert losses["grad_norm"] > 0.2
    for _ in range(STEPS - 1):
        update()
    agree(after, xuance_params(*nets))


def test_the_seeds_own_mistakes_are_not_ours(x64):
    """TensorFlow's targets, MindSpore's half clip and the no-clip value-norm branch differ from
    what both references mean; ours is the right one."""
    data = rows("discrete")
    target, value, active = (jnp.asarray(data[name]) for name in ("return", "value", "active"))
    right = objective_of(clip_value=False, huber=False, norm=True, squared_factor=1.0)
    batch = ours(data, FORGETFUL)
    minibatch_stats = right.minibatch_stats(batch)
    _, statistics = right.prepare(None, {}, ValueNorm.create(), minibatch_stats)
    entries = right._value_loss(
        value, batch.value, target, statistics, hyper_params(huber_delta=DELTA)
    )
    loss = float(masked_mean(entries, active, minibatch_stats.counts))

    torch_value, torch_target, mask = (torch.tensor(data[n])[..., None] for n in
                                       ("value", "return", "active"))  # fmt: skip
    meant = reference.xuance_value_loss(
        torch_value, None, torch_target, None, False, None, False, value_norm_of(True), mask
    )
    wrong = reference.unnormalised_no_clip_value_loss(
        torch_value, torch_target, value_norm_of(True), mask
    )
    np.testing.assert_allclose(loss, meant, rtol=1e-10)
    assert abs(loss - float(wrong)) > 0.1
    taken = reference.tensorflow_value_target({"value": torch_value, "return": torch_target})
    assert not torch.equal(taken, torch_target)  # ours regresses to returns
    np.testing.assert_array_equal(batch.target, target)
    assert reference.mindspore_clip(CLIP) == CLIP / 2  # ours clips at CLIP, as shown above
    assert active.min() == 0
