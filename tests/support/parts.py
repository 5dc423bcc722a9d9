"""Parts of algorithms with the options' defaults, but for what a test is about."""

from dataclasses import replace

from jmarl.algorithms.ppo import make_objective
from jmarl.config.train_config import build
from jmarl.envs.base import make
from jmarl.learning.ppo_loss import HyperParams
from jmarl.policies.actor_critic import ActorCriticPolicy
from jmarl.policies.actor_critic_nets import NetActor, NetCritic

FORGETFUL = {"actor": (), "critic": ()}  # the memory of an actor-critic without GRUs


def objective(**changes):
    config = build({"algorithm": "mappo"})
    return replace(make_objective(config, make(config.env).spec), **changes)


def hyper(**changes):
    ppo = build({"algorithm": "mappo"}).ppo
    return HyperParams(*(getattr(ppo, name) for name in HyperParams._fields))._replace(**changes)


def actor_critic(
    obs_sizes,
    state_size,
    space,
    shape,
    critic_head_hidden=None,
    critic_input="all",
    team_obs_sizes=None,
    agent_id="none",
    log_std=0.0,
    squash_mean=False,
    distribution="gaussian",
    start_state="stored",
):
    actor = NetActor(
        obs_sizes, space, shape, log_std=log_std, squash_mean=squash_mean, agent_id=agent_id
    )
    head = shape.head_hidden if critic_head_hidden is None else critic_head_hidden
    critic = NetCritic(
        obs_sizes,
        state_size,
        replace(shape, head_hidden=head),
        reads=critic_input,
        team_obs_sizes=team_obs_sizes,
        agent_id=agent_id,
    )
    return ActorCriticPolicy(actor, critic, len(obs_sizes), space, distribution, start_state)
