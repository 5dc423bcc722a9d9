"""MAPPO with another critic: it attends to the observations of all agents."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
from flax import linen as nn

import jmarl
from jmarl.algorithms.actor_critic import make_actor_critic


class Options(jmarl.Section):
    """Given as --attention.width 64."""

    width: int = jmarl.option(32, "Width of the critic.", ge=1)
    heads: int = jmarl.option(2, "Number of attention heads; must divide the width.", ge=1)


class Net(nn.Module):
    width: int
    heads: int

    @nn.compact
    def __call__(self, obs):  # […, n, O] → […, n]
        x = nn.relu(nn.Dense(self.width)(nn.LayerNorm()(obs)))
        x = x + nn.MultiHeadDotProductAttention(num_heads=self.heads)(x)
        return nn.Dense(1, name="out")(nn.LayerNorm()(x))[..., 0]


@dataclass(frozen=True)
class AttentionCritic:
    """A `jmarl.policies.actor_critic.Critic`."""

    net: Net
    num_agents: int
    obs_size: int
    recurrent: bool = False
    reads_state: bool = False
    value_head: tuple[str, ...] = ("out",)  # where PopArt finds the last layer

    def init(self, key):
        return self.net.init(key, jnp.zeros((1, self.num_agents, self.obs_size)))["params"]

    def memory(self, num_envs):
        return ()

    def __call__(self, params, memory, seen):
        return memory, self.net.apply({"params": params}, seen.obs)


def make_policy(config, spec, agents, team=None):
    policy = make_actor_critic(config, spec, agents, team)
    net = Net(config.attention.width, config.attention.heads)
    obs_size = max(spec.obs_sizes[i] for i in agents)
    return replace(policy, critic=AttentionCritic(net, len(agents), obs_size))


jmarl.register_algorithm(
    "attention_mappo",
    like="mappo",
    make_policy=make_policy,
    options=Options,
    section="attention",
    without=(
        *("net.critic_input", "net.critic_gain", "net.critic_hidden"),
        *("net.critic_head_hidden", "net.share"),
    ),
)
