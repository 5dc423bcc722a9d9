"""FLOPs of matmuls per environment step, two per multiplication.

A layer costs the size of its matrix per row. Learning from a row costs three times its forward pass
(forward, gradients of inputs, gradients of weights). XLA's own count is not usable here, because it
counts the body of a loop once.
"""

from itertools import pairwise

from jmarl.config.train_config import Config
from jmarl.envs.base import EnvSpec


def layers(*sizes: int) -> int:
    """Multiplications of an MLP with these widths."""
    return sum(a * b for a, b in pairwise(sizes))


def actor_critic(config: Config, spec: EnvSpec) -> int:
    """Multiplications per joint observation: an actor for every agent, and a critic for every agent
    or, if all have the same value, one."""
    net, n, obs = config.net, spec.num_agents, spec.obs_size
    ids = n if net.agent_id == "obs" else 0
    central = net.critic_input in (None, "all") and config.facts.critic_input == "all"
    joint, rows = (n * obs, 1) if central and not ids else (n * obs if central else obs, n)
    width = net.hidden[-1]
    memory = 6 * width**2 if config.recurrent else 0

    def through(size: int, out: int) -> int:
        return layers(size + ids, *net.hidden, *net.head_hidden, out) + memory

    return n * through(obs, spec.action_space.size) + rows * through(joint, 1)


def transformer(config: Config, spec: EnvSpec) -> int:
    """Multiplications of the reference's MAT per joint observation; work that jmarl avoids counts
    too."""
    d, n = config.net.n_embd, spec.num_agents
    attention = 4 * d * d + 2 * n * d  # keys, values, queries, projection; scores and mixture
    mlp, head = 2 * d * d, d * d
    encoder = spec.obs_size * d + config.net.n_block * (attention + mlp) + head + d
    tokens = (spec.action_space.size + 1) * d
    decoder = tokens + config.net.n_block * (2 * attention + mlp)
    return n * (encoder + decoder + head + d * spec.action_space.size)


def per_step(config: Config, spec: EnvSpec) -> float:
    """FLOPs per step of whole training: one forward pass in the rollout, then `epochs` of
    learning."""
    count = transformer if config.transformer else actor_critic
    return 2.0 * count(config, spec) * (1 + 3 * config.ppo.epochs)
