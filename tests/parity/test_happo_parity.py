"""HAPPO against torch: one whole update of every actor and of the critic, in every scenario.

torch's networks have the agents' own sizes, jmarl's are padded to the largest. Both sides have the
same weights and the same recorded rollout, with agents that are out for some steps.
"""

import copy
import itertools
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import build
from jmarl.envs import spaces
from jmarl.envs.spaces import Box, MultiDiscrete
from jmarl.learning.collectives import Layout
from jmarl.policies.base import player_obs_sizes, player_space
from jmarl.types import DATA_AXIS, PolicyInput, PolicyOutput, Trajectory
from tests.support import torch_actor_critic as reference
from tests.support import torch_happo
from tests.support.long import all_but_long
from tests.support.torch_core import ValueNorm, gae_loop, normalise_advantage

T, E, H = 3, 4, 8
EPOCHS, MINIBATCHES, LR, CRITIC_LR_FACTOR = 2, 2, 0.02, 0.5
CRITIC_EPOCHS = 3  # in one test
CLIP, ENTROPY_COEF, DELTA, MAX_NORM = 0.1, 0.02, 1.0, 0.5
GAMMA, LAMBDA = 0.9, 0.8


class Case(NamedTuple):
    actions: str
    distribution: str | None
    team: str
    algorithm: str = "happo"
    layout: Layout = Layout()


CASES = {
    "simple_adversary": Case("discrete", None, "good", layout=Layout(microbatch_rows=2)),
    "simple_crypto": Case("continuous", "beta", "good"),
    "simple_push": Case("continuous", "gaussian", "good"),
    "simple_reference": Case("multidiscrete", None, "agents", layout=Layout(shards=2)),
    "simple_speaker_listener": Case("discrete", None, "agents", "rhappo"),
    "simple_tag": Case("continuous", "tanh", "adversary", layout=Layout(shards=2)),
    "simple_world_comm": Case("multidiscrete", None, "adversary"),
}
DRAWN = Case("continuous", "gaussian", "agents")  # of simple_spread


def built(scenario, case, **happo):
    """A team's player and its learner, and traced hyperparameters."""
    config = build(
        {
            "algorithm": case.algorithm,
            "env": f"mpe/{scenario}",
            "actions": case.actions,
            "num_envs": E,
            "rollout_length": T,
            "total_updates": 1,
            "net": {"hidden": (H, H), "activation": "tanh", "distribution": case.distribution},
            "ppo": {
                "lr": LR,
                "lr_schedule": "constant",
                "critic_lr_factor": CRITIC_LR_FACTOR,
                "gamma": GAMMA,
                "gae_lambda": LAMBDA,
                "clip_eps": CLIP,
                "value_clip_eps": CLIP,
                "huber_delta": DELTA,
                "entropy_coef": 0.0 if case.distribution == "tanh" else ENTROPY_COEF,
                "max_grad_norm": MAX_NORM,
                "epochs": EPOCHS,
                "num_minibatches": MINIBATCHES,
                "shuffle": "none",
                "agent_end": "world",
            },
            "happo": happo,
        }
    )
    trainer, hyper = make_trainer(config)
    players = trainer.players
    at = 0 if len(players) == 1 else [player.name for player in players].index(case.team)
    return trainer.env.spec, players[at], trainer.learners[at], hyper


class Team:
    """torch's networks of a player's agents."""

    def __init__(self, spec, player):
        self.sizes = player_obs_sizes(spec, player.agents)
        self.padded, self.policy = player_space(spec, player.agents), player.policy
        self.spaces = [spec.action_spaces[i] for i in player.agents]
        self.form = {"activation": "tanh", "recurrent": player.policy.recurrent}
        self.actors = [self._actor(i) for i in range(len(self.sizes))]
        critic = reference.Critic(sum(self.sizes), H, **self.form).double()
        self.critic = reference.perturb(critic, seed=99)

    def _actor(self, i):
        space = self.spaces[i]
        kind = {Box: "box", MultiDiscrete: "multi"}.get(type(space), "discrete")
        size = space.heads if kind == "multi" else space.size
        torch.manual_seed(i)
        actor = reference.Actor(self.sizes[i], (kind, size), H, **self.form).double()
        if self.policy.distribution != "gaussian":
            head = actor.act.action_out
            actor.act.action_out = torch_happo.BoundedHead(head, space, self.policy.distribution)
        return reference.perturb(actor, seed=i)

    def params(self):
        """jmarl's, with zeros where an agent has padding."""
        each = [self._padded(i, actor_tree(actor)) for i, actor in enumerate(self.actors)]
        actors = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *each)
        return {"actor": actors, "critic": tree(self.critic, [self.critic.v_out])}

    def _padded(self, i, own):
        """Inputs are the leading ones; outputs are where the joint space has this agent's."""
        inputs = np.arange(self.sizes[i])
        outputs = spaces.entries(self.spaces[i], self.padded)
        padded = {
            "input_norm": {
                name: scattered(x, 0, inputs, max(self.sizes))
                for name, x in own["input_norm"].items()
            },
            "dense_0": own["dense_0"]
            | {"kernel": scattered(own["dense_0"]["kernel"], 0, inputs, max(self.sizes))},
            "out": {
                name: scattered(x, -1, outputs, self.padded.size) for name, x in own["out"].items()
            },
        }
        if "log_std" in own:
            padded["log_std"] = scattered(own["log_std"], 0, outputs, self.padded.size)
        return own | padded


def scattered(x, axis, places, size):
    """x in these places along an axis, else 0."""
    result = np.zeros([*x.shape[: axis % x.ndim], size, *x.shape[axis % x.ndim + 1 :]])
    np.moveaxis(result, axis, 0)[places] = np.moveaxis(x, axis, 0)
    return result


def tree(net, outputs):
    """torch's weights of a network with two hidden layers, by jmarl's names."""
    mlp = net.base.mlp
    linear = {"dense_0": [mlp.fc1[0]], "dense_1": [mlp.fc2[0][0]], "out": outputs}
    norms = {"input_norm": net.base.feature_norm, "ln_0": mlp.fc1[2], "ln_1": mlp.fc2[0][2]}
    recurrent = {"gru": gru_tree(net.rnn.rnn)} if net.recurrent else {}
    if net.recurrent:
        norms["gru_norm"] = net.rnn.norm
    return recurrent | {
        **{
            name: {
                "kernel": np.concatenate([layer.weight.detach().numpy() for layer in layers]).T,
                "bias": np.concatenate([layer.bias.detach().numpy() for layer in layers]),
            }
            for name, layers in linear.items()
        },
        **{
            name: {"scale": norm.weight.detach().numpy(), "bias": norm.bias.detach().numpy()}
            for name, norm in norms.items()
        },
    }


def gru_tree(gru):
    """Of one layer."""
    sides = {"input_0": (gru.weight_ih_l0, gru.bias_ih_l0)}
    sides["hidden_0"] = (gru.weight_hh_l0, gru.bias_hh_l0)
    return {
        name: {"kernel": weight.detach().numpy().T, "bias": bias.detach().numpy()}
        for name, (weight, bias) in sides.items()
    }


def actor_tree(actor):
    act = actor.act
    if act.kind == "box":
        log_std = act.action_out.logstd().detach().numpy()
        return tree(actor, [act.action_out.fc_mean]) | {"log_std": log_std}
    heads = act.action_outs if act.kind == "multi" else [act.action_out]
    return tree(actor, [head.linear for head in heads])


def recorded(team, seed=0):
    """numpy `[T, E, …]`; observations and actions of each agent in its own sizes."""
    rng = np.random.default_rng(seed)
    count = len(team.sizes)

    def action(space):
        if isinstance(space, Box):
            return rng.uniform(0.1, 0.9, (T, E, space.size))
        heads = [rng.integers(0, n, (T, E)) for n in space.heads]
        return np.stack(heads, -1) if space.shape else heads[0]

    return {
        "obs": [rng.normal(size=(T, E, n)) for n in team.sizes],
        "action": [action(space) for space in team.spaces],
        "value": rng.normal(size=(T, E, 1)).repeat(count, axis=2),
        "next_value": rng.normal(size=(T, E, 1)).repeat(count, axis=2),
        "reward": rng.normal(size=(T, E, 1)).repeat(count, axis=2),
        "active": (rng.random((T, E, count)) < 0.8).astype(float),
        "terminated": (rng.random((T, E, 1)) < 0.1).repeat(count, axis=2),
        "truncated": rng.random((T, E)) < 0.2,
        "episode_start": (rng.random((T, E)) < 0.3).astype(float),
        "actor_h": rng.normal(size=(1, E, count, 1, H)),
        "critic_h": rng.normal(size=(1, E, 1, 1, H)),
    }


def torch_rows(team, data):
    """What each actor learns from, and what the critic does; log-probabilities are torch's own."""
    statistics = ValueNorm(dtype=torch.float64)
    ends = (data["terminated"], data["truncated"])
    known, ahead = (
        statistics.denormalize(torch.tensor(data[name])).numpy() for name in ("value", "next_value")
    )
    advantage, target = gae_loop(data["reward"], known, ahead, *ends, GAMMA, LAMBDA, "bootstrap")
    advantage = normalise_advantage(advantage, data["active"])
    actors = []
    for i, actor in enumerate(team.actors):
        rows = {
            "obs": data["obs"][i],
            "action": data["action"][i][..., None]
            if data["action"][i].ndim == 2
            else data["action"][i],
            "advantage": advantage[..., i : i + 1],
            "active": data["active"][..., i : i + 1],
            **memory_rows(team, data, "actor", i),
        }
        rows = {name: torch.as_tensor(x) for name, x in rows.items()}
        with torch.no_grad():
            rows["log_prob"], _ = torch_happo.log_prob_and_entropy(actor, rows)
        actors.append(rows)
    critic = {
        "critic_in": np.concatenate(data["obs"], -1),
        "value": data["value"],
        "return": target,
        "active": data["active"],
        **memory_rows(team, data, "critic", 0),
    }
    return actors, {name: torch.as_tensor(x) for name, x in critic.items()}, statistics


def memory_rows(team, data, part, i):
    """State before the first step, and where it is reset; nothing without memory."""
    if not team.policy.recurrent:
        return {}
    return {
        f"{part}_h": data[f"{part}_h"][:, :, i, 0],
        "masks": 1 - data["episode_start"][..., None],
    }


def trajectory(team, data):
    """The same for jmarl, padded, without log-probabilities."""
    count, width = len(team.sizes), max(team.sizes)
    obs = np.zeros((T, E, count, width))
    for i, own in enumerate(data["obs"]):
        obs[:, :, i, : own.shape[-1]] = own
    masks = np.stack([spaces.mask(space, team.padded) for space in team.spaces])
    return Trajectory(
        seen=PolicyInput(
            obs=jnp.asarray(obs),
            state=jnp.zeros((T, E, 1)),
            action_mask=jnp.broadcast_to(masks, (T, E, *masks.shape)),
            episode_start=jnp.asarray(data["episode_start"]),
        ),
        output=PolicyOutput(padded_actions(team, data), (), jnp.asarray(data["value"])),
        valued=None,
        starts={
            part: jnp.asarray(data[f"{part}_h"]) if team.policy.recurrent else ()
            for part in ("actor", "critic")
        },
        **{
            name: jnp.asarray(data[name])
            for name in ("next_value", "reward", "active", "terminated", "truncated")
        },
    )


def padded_actions(team, data):
    shape = (T, E, len(team.sizes), *team.padded.shape)
    actions = np.zeros(shape, data["action"][0].dtype)
    for i, own in enumerate(data["action"]):
        if own.ndim < actions.ndim - 1:
            own = own[..., None]
        actions[:, :, i][tuple(slice(n) for n in own.shape)] = own
    return jnp.asarray(actions)


def updated(player, learner, hyper, layout, team, data, keys):
    """Learned parameters and metrics with each key; jmarl scores what was recorded itself."""

    def update(params, played, key):
        start = jax.tree.map(lambda x: x[0], played.starts)
        seen, action = played.seen, played.output.action
        log_prob = player.policy.evaluate(params, start, None, seen, action).log_prob
        played = played._replace(output=played.output._replace(log_prob=log_prob))
        state = learner.init(key, params, E)
        return learner.learn(params, state, played, key, hyper, 0.0, layout)

    played = trajectory(team, data)
    if layout.shards > 1:
        played = jax.tree.map(lambda x: x.reshape(len(x), layout.shards, -1, *x.shape[2:]), played)
        update = jax.vmap(update, (None, 1, None), axis_name=DATA_AXIS)
    update = jax.jit(update)
    learned = [update(team.params(), played, key) for key in keys]
    return jax.tree.map(lambda x: x[0], learned) if layout.shards > 1 else learned


def torch_updates(team, data, hyper, order, critic_epochs=EPOCHS):
    """Copies of the networks after an update in this order, M before each agent and the ratios."""
    team = copy.deepcopy(team)
    actor_rows, critic_rows, statistics = torch_rows(team, data)
    options = {"count": MINIBATCHES, "clip": CLIP, "max_grad_norm": MAX_NORM}
    adam = partial(torch.optim.Adam, eps=1e-5)
    optimisers = [adam(actor.parameters(), lr=LR) for actor in team.actors]
    factors, ratios = torch_happo.happo_update(
        team.actors, optimisers, actor_rows, order, entropy_coef=float(hyper.entropy_coef),
        epochs=EPOCHS, **options,
    )  # fmt: skip
    optimiser = adam(team.critic.parameters(), lr=LR * CRITIC_LR_FACTOR)
    torch_happo.critic_update(
        team.critic, optimiser, critic_rows, epochs=critic_epochs, huber_delta=DELTA,
        value_norm=statistics, **options,
    )  # fmt: skip
    return team.params(), factors, ratios


def agree(ours, theirs, atol=1e-10):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol, rtol=atol), ours, theirs)


@pytest.mark.parametrize("scenario", all_but_long(CASES, "simple_tag", "simple_reference"))
def test_an_update_equals_torch(scenario, x64, unwatched):
    """Several epochs of minibatches, in the agents' own order; some over two shards."""
    spec, player, learner, hyper = built(scenario, CASES[scenario], fixed_order=True)
    team = Team(spec, player)
    data = recorded(team)
    [learned] = updated(
        player, learner, hyper, CASES[scenario].layout, team, data, [jax.random.key(0)]
    )
    params, factors, ratios = torch_updates(team, data, hyper, range(len(team.sizes)))
    agree(learned.params, params)
    for first, *_ in ratios:  # M is no part of an agent's own ratio
        assert first == pytest.approx(1.0, abs=1e-12)
    agree(learned.metrics["losses/ratio"], np.mean(ratios))
    for factor in factors[1:]:
        assert np.abs(factor.numpy() - 1).max() > 0.05  # M matters


def test_a_drawn_order_is_one_of_torchs(x64, unwatched):
    """With every key exactly one of all orders gives torch's parameters; keys differ in theirs."""
    spec, player, learner, hyper = built("simple_spread", DRAWN, critic_epochs=CRITIC_EPOCHS)
    team = Team(spec, player)
    data = recorded(team)
    orders = list(itertools.permutations(range(len(team.sizes))))
    theirs = {order: torch_updates(team, data, hyper, order, CRITIC_EPOCHS)[0] for order in orders}
    found = set()
    keys = jax.random.split(jax.random.key(1), 4)
    for learned in updated(player, learner, hyper, DRAWN.layout, team, data, keys):
        outputs = learned.params["actor"]["out"]["kernel"]
        far = {
            order: np.abs(outputs - params["actor"]["out"]["kernel"]).max()
            for order, params in theirs.items()
        }
        nearest, other = sorted(far, key=far.__getitem__)[:2]
        agree(learned.params, theirs[nearest])
        assert far[other] > 1e-4
        found.add(nearest)
    assert len(found) > 1
