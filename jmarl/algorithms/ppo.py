"""The PPO learner of every algorithm: objective and optimiser."""

import optax

from jmarl.config.options import PpoConfig
from jmarl.config.train_config import Config
from jmarl.envs.base import EnvSpec
from jmarl.envs.spaces import Box
from jmarl.learning.ppo import Ppo
from jmarl.learning.ppo_loss import Objective
from jmarl.literals import AgentEnd, Ratio
from jmarl.policies.base import Player, team_places


def make_learner(config: Config, spec: EnvSpec, player: Player) -> Ppo:
    ppo = config.ppo
    return Ppo(
        policy=player.policy,
        objective=make_objective(config, spec),
        optimiser=make_optimiser(ppo),
        epochs=ppo.epochs,
        num_minibatches=ppo.num_minibatches,
        shuffle=ppo.shuffle,
        sequence_length=ppo.chunk_length if player.policy.recurrent else None,
        returns=ppo.returns,
        time_limit=ppo.time_limit,
        lr_schedule=ppo.lr_schedule,
        lr_end_factor=ppo.lr_end_factor,
        clip_apart=ppo.clip_apart,
        stop_on_kl=ppo.target_kl > 0,
        log_last_minibatch=config.facts.log_last_minibatch,
        reward_parts=reward_parts(spec, player) if ppo.normalise_reward else None,
    )


def make_objective(config: Config, spec: EnvSpec) -> Objective:
    ppo = config.ppo
    return Objective(
        ratio=ppo.ratio or default_ratio(config, spec),
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
    )


def default_ratio(config: Config, spec: EnvSpec) -> Ratio:
    """MAT clips every component for itself; on-policy and XuanCe only the heads of a discrete
    choice, while a Gaussian's dimensions have one ratio."""
    continuous = isinstance(spec.action_space, Box)
    return config.facts.continuous_ratio if continuous else "component"


def agent_end(ppo: PpoConfig) -> AgentEnd:
    """An agent that is paid its team's reward has its team's future."""
    return ppo.agent_end or ("own" if ppo.reward == "individual" else "team")


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


def reward_parts(spec: EnvSpec, player: Player) -> tuple[tuple[int, ...], ...]:
    """The player's agents whose rewards have one scale, those of one team, by their place among the
    player's agents."""
    return tuple(team_places(spec.teams, player.agents).values())
