"""The references' state_dicts of torch modules, as arrays and as jmarl's parameters."""

import jax
import jax.numpy as jnp
import torch
from flax.traverse_util import unflatten_dict

from jmarl.references.base import to_params
from jmarl.references.mat import MAT
from jmarl.references.onpolicy import ON_POLICY


def arrays(module):
    return {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


def params_of(reference, weights, policy):
    """A tree, in the weights' precision."""
    flat = to_params(reference, weights, policy)
    return jax.tree.map(jnp.asarray, unflatten_dict(flat, sep="."))


def mat_params(model, policy):
    return params_of(MAT, arrays(model), policy)


def onpolicy_weights(actor, critic):
    """Names of two files together."""
    files = {"actor": arrays(actor), "critic": arrays(critic)}
    return {f"{file}.{name}": x for file, own in files.items() for name, x in own.items()}


def onpolicy_params(actor, critic, policy):
    return params_of(ON_POLICY, onpolicy_weights(actor, critic), policy)


def xuance_places(actor, critic):
    """XuanCe's names of 2023 → which `XuanceNet` and its own name, by hand: XuanCe has the head and
    the output in one Sequential."""
    found = {}
    for net, read, head in (
        (actor, "representation", "actor.pi_logits" if actor.log_std is None else "actor.mu"),
        (critic, "representation_critic", "critic.model"),
    ):
        places = {
            "representation": f"{read}.{'mlp' if net.recurrent else 'model'}",
            "gru": f"{read}.rnn",
            "input_norm": f"{read}.input_norm",
            "gru_norm": f"{read}.norm_rnn",
            "head": head,
            "out": f"{head}.{len(net.head)}",
            "log_std": "actor.log_std",
        }
        for name in net.state_dict():
            module, dot, rest = name.partition(".")
            found[f"{places[module]}{dot}{rest}"] = (net, name)
    return found


def xuance_weights(actor, critic):
    places = xuance_places(actor, critic).items()
    return {theirs: arrays(net)[name] for theirs, (net, name) in places}


def ppo_payload(agent):
    """What the continuous PPO trainer saves."""
    optimiser = torch.optim.Adam(agent.parameters())
    (agent.policy(torch.zeros(1, agent.critic[0].in_features, dtype=agent.actor_logstd.dtype))
     .mean.sum().backward())  # fmt: skip
    optimiser.step()
    return {
        "actor_mean": agent.actor_mean.state_dict(),
        "actor_logstd": agent.actor_logstd.detach(),
        "critic": agent.critic.state_dict(),
        "optimizer": optimiser.state_dict(),
    }
