"""How much multiplying a step of one world costs: products alone, two operations each.

A layer costs its matrix once per row; learning from a row costs three times as much as looking at
it (forward, gradients of inputs, gradients of weights). XLA's own count is of no use here: it
counts the body of a loop once.
"""

from itertools import pairwise

from jmarl.config.train_config import Config
from jmarl.envs.base import EnvSpec


def layers(*sizes: int) -> int:
    """Of a chain of products through these widths."""
    return sum(a * b for a, b in pairwise(sizes))


def actor_critic(config: Config, spec: EnvSpec) -> int:
    """Multiplications for one joint view: actors for every agent, and a critic for each or, where
    all are valued alike, one."""
    net, n, obs = config.net, spec.num_agents, spec.obs_size
    ids = n if net.agent_id == "obs" else 0
    central = net.critic_input in (None, "all") and config.algorithm in ("mappo", "rmappo")
    joint, rows = (n * obs, 1) if central and not ids else (n * obs if central else obs, n)
    width = net.hidden[-1]
    memory = 6 * width**2 if config.recurrent else 0

    def through(size: int, out: int) -> int:
        return layers(size + ids, *net.hidden, *net.head_hidden, out) + memory

    return n * through(obs, spec.action_space.size) + rows * through(joint, 1)


def transformer(config: Config, spec: EnvSpec) -> int:
    """Of the reference's MAT for one joint view; what jmarl saves of it counts as done."""
    d, n = config.net.n_embd, spec.num_agents
    attention = 4 * d * d + 2 * n * d  # keys, values, queries, projection; scores and mixture
    mlp, head = 2 * d * d, d * d
    encoder = spec.obs_size * d + config.net.n_block * (attention + mlp) + head + d
    tokens = (spec.action_space.size + 1) * d
    decoder = tokens + config.net.n_block * (2 * attention + mlp)
    return n * (encoder + decoder + head + d * spec.action_space.size)


def per_step(config: Config, spec: EnvSpec) -> float:
    """Of whole training: one look when playing, `epochs` times learning from it."""
    count = transformer if config.transformer else actor_critic
    return 2.0 * count(config, spec) * (1 + 3 * config.ppo.epochs)
