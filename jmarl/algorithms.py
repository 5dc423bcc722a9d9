"""From a configuration to a trainer: the only place where algorithms differ."""

import optax

import jmarl
from jmarl.config import Config, PpoConfig
from jmarl.envs.base import Env, EnvSpec
from jmarl.mat import MatPolicy
from jmarl.objective import Hyper, Objective
from jmarl.policies import Policy
from jmarl.rollout import team_obs_size
from jmarl.trainer import Trainer


def make_env(config: Config) -> Env:
    chosen = {} if config.actions is None else {"actions": config.actions}
    return jmarl.make(config.env, **config.env_options, **chosen)


def make_policies(config: Config, spec: EnvSpec) -> tuple[Policy, ...]:
    """One policy a team."""
    return tuple(
        MatPolicy(
            num_agents=len(team.agents),
            obs_size=team_obs_size(spec, i),
            space=spec.action_space,
            n_embd=config.net.n_embd,
            n_head=config.net.n_head,
            n_block=config.net.n_block,
            variant=config.algorithm,
            share_actor=config.net.share_actor,
            agent_order=config.net.agent_order,
        )
        for i, team in enumerate(spec.teams)
    )


def make_optimiser(ppo: PpoConfig) -> optax.GradientTransformation:
    """Without the learning rate, which is traced."""
    return optax.identity() if ppo.optimiser == "sgd" else optax.scale_by_adam(eps=ppo.adam_eps)


def make_trainer(config: Config) -> tuple[Trainer, Hyper]:
    """The static program and its traced numbers."""
    env, ppo = make_env(config), config.ppo
    trainer = Trainer(
        env=env,
        policies=make_policies(config, env.spec),
        num_envs=config.num_envs,
        rollout_length=config.rollout_length,
        total_updates=config.num_updates,
        epochs=ppo.epochs,
        num_minibatches=ppo.num_minibatches,
        shuffle=ppo.shuffle,
        objective=Objective(
            value_loss=ppo.value_loss,
            clip_value=ppo.clip_value,
            value_norm=ppo.value_norm,
            agent_reduction=ppo.agent_reduction,
            advantage_norm=ppo.advantage_norm,
        ),
        time_limit=ppo.time_limit,
        share=ppo.reward,
        lr_schedule=ppo.lr_schedule,
        lr_end_factor=ppo.lr_end_factor,
        returns=ppo.returns,
        optimiser=make_optimiser(ppo),
        stop_on_kl=ppo.target_kl > 0,
    )
    traced = {name: getattr(ppo, name) for name in Hyper.__dataclass_fields__}
    return trainer, Hyper(**traced)
