"""HAPPO: an actor for every agent, a central critic, and a learner that updates agents in turn."""

from dataclasses import fields, replace
from typing import Any, cast

from jmarl.algorithms.actor_critic import make_actor, make_critic
from jmarl.algorithms.distributions import action_distribution
from jmarl.algorithms.ppo import make_learner as make_ppo
from jmarl.config.happo import HappoConfig
from jmarl.config.train_config import Config
from jmarl.envs.base import EnvSpec
from jmarl.errors import ConfigError
from jmarl.learning.happo import Happo
from jmarl.policies.base import Player, player_space
from jmarl.policies.own_actors import OwnActors, OwnActorsPolicy


def make_policy(
    config: Config, spec: EnvSpec, agents: tuple[int, ...], team: tuple[int, ...] | None = None
) -> OwnActorsPolicy:
    """Ids of agents tell nothing to actors that are one agent's: only the critic reads them."""
    actor = replace(make_actor(config, spec, agents), agent_id="none")
    return OwnActorsPolicy(
        actor=OwnActors(actor),
        critic=make_critic(config, spec, agents, team),
        num_agents=len(agents),
        space=player_space(spec, agents),
        distribution=action_distribution(config.net, spec, agents),
        start_state=config.net.start_state,
    )


def make_learner(config: Config, spec: EnvSpec, player: Player) -> Happo:
    if config.ppo.advantage_norm == "minibatch":
        raise ConfigError(
            f"ppo.advantage_norm='minibatch' cannot go with algorithm={config.algorithm!r}, which "
            "weights normalised advantages before it makes minibatches: choose 'batch' or 'none'."
        )
    ppo, own = make_ppo(config, spec, player), cast(HappoConfig, cast(Any, config).happo)
    return Happo(
        **{field.name: getattr(ppo, field.name) for field in fields(ppo)},
        fixed_order=own.fixed_order,
        critic_epochs=own.critic_epochs or config.ppo.epochs,
    )
