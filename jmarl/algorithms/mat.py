"""The Multi-Agent Transformer and its variants: one transformer for a team."""

from typing import Any

from jmarl.algorithms.actor_critic import make_images
from jmarl.algorithms.distributions import action_distribution, start_log_std
from jmarl.config.algorithms import TRANSFORMERS
from jmarl.config.train_config import Config
from jmarl.envs.base import EnvSpec
from jmarl.literals import Transformer
from jmarl.networks import mat
from jmarl.policies.base import Policy, player_obs_sizes, player_space
from jmarl.policies.mat import MatPolicy
from jmarl.registry import lineage


def make_transformer(
    config: Config, spec: EnvSpec, agents: tuple[int, ...], team: tuple[int, ...] | None = None
) -> Policy:
    """`team`: of no use; the encoder reads the observations of `agents`."""
    del team
    net = config.net
    distribution = action_distribution(net, spec, agents)
    return MatPolicy(
        obs_sizes=player_obs_sizes(spec, agents),
        space=player_space(spec, agents),
        n_embd=net.n_embd,
        n_head=net.n_head,
        n_block=net.n_block,
        variant=variant(config.algorithm),
        share_actor=net.share_actor,
        agent_order=net.agent_order,
        precision=net.precision,
        distribution=distribution,
        log_std=start_log_std(net, distribution, gaussian=mat.LOG_STD),
        images=make_images(config, spec),
    )


def variant(algorithm: str) -> Transformer:
    """The built-in transformer that it is, or is like."""
    found: Any = next(each.name for each in lineage(algorithm) if each.name in TRANSFORMERS)
    return found
