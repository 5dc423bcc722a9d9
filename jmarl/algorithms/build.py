"""From a configuration to a trainer: the only place where algorithms differ."""

import optax

from jmarl.config.train_config import Config, NetConfig, PpoConfig
from jmarl.envs.base import Env, EnvSpec, Team, make
from jmarl.envs.spaces import Box
from jmarl.errors import ConfigError
from jmarl.learning.ppo_loss import Hyper, Objective
from jmarl.learning.trainer import Trainer
from jmarl.literals import AgentEnd, CriticInput, Distribution, Ratio
from jmarl.networks import mat
from jmarl.networks.torso import Shape
from jmarl.policies.actor_critic import ActorCriticPolicy
from jmarl.policies.base import Group, Policy, group_obs_sizes, group_space
from jmarl.policies.continuous_actions import LOG_STD
from jmarl.policies.mat import MatPolicy


def make_env(config: Config) -> Env:
    chosen = {} if config.actions is None else {"actions": config.actions}
    return make(config.env, **config.env_options, **chosen)


def make_groups(config: Config, spec: EnvSpec) -> tuple[Group, ...]:
    """A policy and a learner for every team, for every agent, or one for all agents."""
    if config.net.share == "none":
        return tuple(
            _alone(config, spec, team, agent) for team in spec.teams for agent in team.agents
        )
    everybody = (Team("all", tuple(range(spec.num_agents))),)
    teams = everybody if config.net.share == "all" else spec.teams
    policy = make_transformer if config.transformer else make_actor_critic
    return tuple(Group(team.name, team.agents, policy(config, spec, team.agents)) for team in teams)


def _alone(config: Config, spec: EnvSpec, team: Team, agent: int) -> Group:
    """An agent that learns by itself. A central critic still reads the observations of its team."""
    joint = critic_input(config) in ("all", "all_and_state")
    others = team.agents if joint else None
    policy = make_actor_critic(config, spec, (agent,), others)
    return Group(spec.agents[agent], (agent,), policy, others)


def critic_input(config: Config) -> CriticInput:
    central = config.algorithm in ("mappo", "rmappo")
    return config.net.critic_input or ("all" if central else "own")


def action_distribution(net: NetConfig, spec: EnvSpec, agents: tuple[int, ...]) -> Distribution:
    """Of continuous actions: the chosen one, if the world's bounds allow it."""
    fault, bounded = _bounds_fault(spec, agents), net.distribution in ("tanh", "beta")
    if (bounded or net.squash_mean) and fault:
        option = f"net.distribution={net.distribution!r}" if bounded else "net.squash_mean=True"
        raise ConfigError(
            f"{option} needs continuous actions with finite bounds, which all agents of a network "
            f"share, but {fault}."
        )
    return net.distribution or ("gaussian" if fault or net.squash_mean else "tanh")


def start_log_std(net: NetConfig, distribution: Distribution, gaussian: float) -> float:
    """Of the noise; `gaussian` is the default of one."""
    if net.log_std is not None:
        return net.log_std
    return gaussian if distribution == "gaussian" else LOG_STD[distribution]


def _bounds_fault(spec: EnvSpec, agents: tuple[int, ...]) -> str | None:
    """Why one network for these agents cannot choose actions between bounds."""
    shared = group_space(spec, agents)
    if not isinstance(shared, Box):
        return f"{spec.name} has discrete actions"
    for i in agents:
        agent, space = spec.agents[i], spec.action_spaces[i]
        assert isinstance(space, Box)
        if not space.bounded:
            return f"{agent} has low={space.low} and high={space.high}"
        if (space.low, space.high) != (shared.low[: space.size], shared.high[: space.size]):
            return (
                f"{agent} has low={space.low} and high={space.high}, others have "
                f"low={shared.low} and high={shared.high}"
            )
    return None


def make_transformer(config: Config, spec: EnvSpec, agents: tuple[int, ...]) -> Policy:
    net = config.net
    distribution = action_distribution(net, spec, agents)
    return MatPolicy(
        obs_sizes=group_obs_sizes(spec, agents),
        space=group_space(spec, agents),
        n_embd=net.n_embd,
        n_head=net.n_head,
        n_block=net.n_block,
        variant=config.algorithm,  # pyright: ignore[reportArgumentType] (the caller has looked)
        share_actor=net.share_actor,
        agent_order=net.agent_order,
        precision=net.precision,
        distribution=distribution,
        log_std=start_log_std(net, distribution, gaussian=mat.LOG_STD),
    )


def make_actor_critic(
    config: Config, spec: EnvSpec, agents: tuple[int, ...], team: tuple[int, ...] | None = None
) -> Policy:
    """`team`: whose observations a central critic reads, if others than those of `agents`."""
    net = config.net
    distribution = action_distribution(net, spec, agents)
    return ActorCriticPolicy(
        obs_sizes=group_obs_sizes(spec, agents),
        state_size=spec.state_size,
        space=group_space(spec, agents),
        shape=Shape(
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
        ),
        critic_hidden=net.critic_hidden,
        critic_head_hidden=net.critic_head_hidden,
        critic_input=critic_input(config),
        team_obs_sizes=None if team is None else group_obs_sizes(spec, team),
        agent_id=net.agent_id,
        actor_gain=net.actor_gain,
        critic_gain=net.critic_gain,
        log_std=start_log_std(net, distribution, gaussian=LOG_STD["gaussian"]),
        squash_mean=net.squash_mean,
        distribution=distribution,
        start_state=net.start_state,
        precision=net.precision,
    )


def make_optimiser(ppo: PpoConfig) -> optax.GradientTransformation:
    """Without the learning rate, which is traced. All parameters are one vector to it: many small
    ones would cost more in operations begun than in arithmetic. Weight decay is torch's: added to
    the clipped gradient, g + w·θ, before Adam or momentum see it."""
    if ppo.optimiser == "sgd":
        follow = optax.trace(ppo.momentum) if ppo.momentum else optax.identity()
    else:
        follow = optax.scale_by_adam(eps=ppo.adam_eps)
    if ppo.weight_decay:
        follow = optax.chain(optax.add_decayed_weights(ppo.weight_decay), follow)
    return optax.flatten(follow)


def agent_end(ppo: PpoConfig) -> AgentEnd:
    """An agent that is paid its team's reward has its team's future."""
    return ppo.agent_end or ("own" if ppo.reward == "individual" else "team")


def default_ratio(config: Config, spec: EnvSpec) -> Ratio:
    """MAT clips every component for itself; on-policy and XuanCe only the heads of a discrete
    choice, while a Gaussian's dimensions have one ratio."""
    continuous = isinstance(spec.action_space, Box)
    return "joint" if continuous and not config.transformer else "component"


def make_trainer(config: Config) -> tuple[Trainer, Hyper]:
    """The static program and its traced numbers."""
    env, ppo = make_env(config), config.ppo
    if config.algorithm == "ppo" and env.spec.num_agents > 1:
        raise ConfigError(
            f"algorithm='ppo' is for worlds of one agent; {config.env} has "
            f"{env.spec.num_agents}: choose ippo, mappo or mat."
        )
    trainer = Trainer(
        env=env,
        groups=make_groups(config, env.spec),
        num_envs=config.num_envs,
        rollout_length=config.rollout_length,
        total_updates=config.num_updates,
        epochs=ppo.epochs,
        num_minibatches=ppo.num_minibatches,
        shuffle=ppo.shuffle,
        chunk_length=ppo.chunk_length,
        objective=Objective(
            ratio=ppo.ratio or default_ratio(config, env.spec),
            entropy=ppo.entropy,
            value_loss=ppo.value_loss,
            squared_factor=ppo.squared_factor,
            clip_value=ppo.clip_value,
            value_norm=ppo.value_norm,
            agent_reduction=ppo.agent_reduction,
            advantage_norm=ppo.advantage_norm,
            advantage_entries=ppo.advantage_entries,
            advantage_eps=ppo.advantage_eps,
            advantage_ddof=ppo.advantage_ddof,
            inactive_targets=agent_end(ppo) == "world",
        ),
        time_limit=ppo.time_limit,
        agent_end=agent_end(ppo),
        share=ppo.reward,
        lr_schedule=ppo.lr_schedule,
        lr_end_factor=ppo.lr_end_factor,
        returns=ppo.returns,
        optimiser=make_optimiser(ppo),
        clip_apart=ppo.clip_apart and not config.transformer,
        stop_on_kl=ppo.target_kl > 0,
        skip_nonfinite=config.on_nonfinite == "skip",
        normalise_obs=ppo.normalise_obs,
        normalise_reward=ppo.normalise_reward,
    )
    traced = {name: getattr(ppo, name) for name in Hyper.__dataclass_fields__}
    return trainer, Hyper(**traced)
