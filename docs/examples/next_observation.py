"""MAPPO with an auxiliary loss: the actor's features also predict the next observation."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from flax import linen as nn

import jmarl
from jmarl.algorithms.actor_critic import make_actor_critic
from jmarl.algorithms.ppo import make_learner
from jmarl.envs.spaces import Discrete
from jmarl.errors import ConfigError
from jmarl.learning.ppo import Ppo


class Options(jmarl.Section):
    """Given as --prediction.weight 0.5. Traced: a sweep over the weight is one compiled program."""

    weight: float = jmarl.option(0.1, "Weight of the loss.", traced=True, ge=0)
    features: int = jmarl.option(64, "Width of the features.", ge=1)


class Net(nn.Module):
    features: int
    actions: int
    obs_size: int

    def setup(self):
        self.encoder = nn.Dense(self.features)
        self.norm = nn.LayerNorm()
        self.out = nn.Dense(self.actions, kernel_init=nn.initializers.orthogonal(0.01))
        self.predictor = nn.Dense(self.obs_size)

    def logits(self, obs):
        return self.out(self._features(obs))

    def next_obs(self, obs, action):
        done = jax.nn.one_hot(action, self.actions)
        return obs + self.predictor(jnp.concatenate([self._features(obs), done], axis=-1))

    def both(self, obs, action):
        return self.logits(obs), self.next_obs(obs, action)

    def _features(self, obs):
        return self.norm(nn.tanh(self.encoder(obs)))


@dataclass(frozen=True)
class PredictingActor:
    """A `jmarl.policies.actor_critic.Actor`."""

    net: Net
    num_agents: int
    recurrent: bool = False

    def init(self, key):
        obs = jnp.zeros((1, self.num_agents, self.net.obs_size))
        action = jnp.zeros((1, self.num_agents), jnp.int32)
        return self.net.init(key, obs, action, method="both")["params"]

    def memory(self, num_envs):
        return ()

    def __call__(self, params, memory, seen):
        logits = self.net.apply({"params": params}, seen.obs, method="logits")
        return memory, logits, jnp.ones(())


class PredictingPpo(Ppo):
    """PPO whose loss has one more term."""

    def batch(self, value_norm, played, hyper, layout):
        """What the loss needs besides goes along as the decisions' context."""
        after = jnp.roll(played.seen.obs, -1, axis=0)  # [T, E, n, O]; the last step's is not known
        ended = played.truncated | played.terminated.all(-1)
        known = jnp.where(ended, 0.0, 1.0).at[-1].set(0.0)[..., None] * played.active
        played = played._replace(output=played.output._replace(context=(after, known)))
        return super().batch(value_norm, played, hyper, layout)

    def loss(self, hyper, params, value_norm, batch, stats):
        """Of a microbatch: the new term, too, divides by a count of the whole minibatch."""
        whole, metrics = super().loss(hyper, params, value_norm, batch, stats)
        after, known = batch.context
        given = {"params": params["actor"]}, batch.seen.obs, batch.action
        error = self.policy.actor.net.apply(*given, method="next_obs") - after
        term = ((error**2).mean(-1) * known).sum() / stats.counts.active
        whole = whole + hyper.weight * term
        return whole, metrics | {"losses/total_loss": whole, "losses/prediction": term}


def make_policy(config, spec, agents, team=None):
    if not isinstance(spec.action_space, Discrete):
        raise ConfigError("predicting_mappo is for discrete actions.")
    policy = make_actor_critic(config, spec, agents, team)
    obs_size = max(spec.obs_sizes[i] for i in agents)
    net = Net(config.prediction.features, policy.space.size, obs_size)
    return replace(policy, actor=PredictingActor(net, len(agents)))


def make_predicting(config, spec, player):
    return PredictingPpo(**vars(make_learner(config, spec, player)))


jmarl.register_algorithm(
    "predicting_mappo",
    like="mappo",
    make_policy=make_policy,
    make_learner=make_predicting,
    options=Options,
    section="prediction",
    without=("net.actor_gain", "net.distribution", "net.log_std", "net.squash_mean"),
)
