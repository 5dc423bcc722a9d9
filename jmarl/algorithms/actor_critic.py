"""MAPPO and IPPO, recurrent or not, and PPO: actors and critics."""

from dataclasses import replace

from flax import linen as nn

from jmarl.algorithms.distributions import action_distribution, start_log_std
from jmarl.config.train_config import Config
from jmarl.envs.base import EnvSpec
from jmarl.errors import ConfigError
from jmarl.literals import CriticInput
from jmarl.networks.convolution import Images
from jmarl.networks.torso import Shape
from jmarl.policies.actor_critic import ActorCriticPolicy
from jmarl.policies.actor_critic_nets import NetActor, NetCritic
from jmarl.policies.base import Policy, player_obs_sizes, player_space
from jmarl.policies.continuous_actions import LOG_STD
from jmarl.registry import resolve


def make_actor_critic(
    config: Config, spec: EnvSpec, agents: tuple[int, ...], team: tuple[int, ...] | None = None
) -> Policy:
    """`team`: whose observations a central critic reads, if others than those of `agents`."""
    return ActorCriticPolicy(
        actor=make_actor(config, spec, agents),
        critic=make_critic(config, spec, agents, team),
        num_agents=len(agents),
        space=player_space(spec, agents),
        distribution=action_distribution(config.net, spec, agents),
        start_state=config.net.start_state,
    )


def make_actor(config: Config, spec: EnvSpec, agents: tuple[int, ...]) -> NetActor:
    net, distribution = config.net, action_distribution(config.net, spec, agents)
    return NetActor(
        obs_sizes=player_obs_sizes(spec, agents),
        space=player_space(spec, agents),
        shape=make_shape(config, spec),
        gain=net.actor_gain,
        log_std=start_log_std(net, distribution, gaussian=LOG_STD["gaussian"]),
        squash_mean=net.squash_mean,
        agent_id=net.agent_id,
        precision=net.precision,
    )


def make_critic(
    config: Config, spec: EnvSpec, agents: tuple[int, ...], team: tuple[int, ...] | None = None
) -> NetCritic:
    net, shape = config.net, make_shape(config, spec)
    head = net.critic_head_hidden
    return NetCritic(
        obs_sizes=player_obs_sizes(spec, agents),
        state_size=spec.state_size,
        shape=replace(
            shape,
            hidden=net.critic_hidden or shape.hidden,
            head_hidden=shape.head_hidden if head is None else head,
        ),
        reads=critic_input(config),
        team_obs_sizes=None if team is None else player_obs_sizes(spec, team),
        gain=net.critic_gain,
        agent_id=net.agent_id,
        precision=net.precision,
    )


def critic_input(config: Config) -> CriticInput:
    return config.net.critic_input or config.facts.critic_input


def make_shape(config: Config, spec: EnvSpec) -> Shape:
    net = config.net
    return Shape(
        hidden=net.hidden,
        head_hidden=net.head_hidden,
        activation=net.activation,
        input_norm=net.input_norm,
        layer_norm=net.layer_norm,
        gain=net.gain,
        head_init=net.head_init,
        recurrent=config.recurrent,
        gru_layers=net.gru_layers,
        gru_norm=net.gru_norm,
        body=None if net.body is None else _body(net.body),
        images=None if net.body else make_images(config, spec),
    )


def make_images(config: Config, spec: EnvSpec) -> Images | None:
    """How networks read the world's observations, if these are images."""
    features = config.net.conv_features
    return Images(spec.obs_shape, features) if spec.obs_shape and features else None


def _body(name: str) -> type[nn.Module]:
    """The class that `--net.body module:Class` names."""
    found = resolve(name)
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise ConfigError(f"net.body={name!r} is not a class of Flax modules (flax.linen.Module).")
    return found
