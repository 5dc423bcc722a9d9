"""What on-policy, XuanCe and the PPO trainer have in common: `NetActor` with `NetCritic`."""

from typing import Any

from jmarl.networks.torso import Shape
from jmarl.policies.actor_critic import ActorCriticPolicy
from jmarl.policies.actor_critic_nets import NetActor, NetCritic
from jmarl.references.base import Misfit, one_gaussian


def other_policy(policy: Any) -> Misfit | None:
    """A policy without the two networks that these references save."""
    halves = (getattr(policy, "actor", None), getattr(policy, "critic", None))
    ours = isinstance(policy, ActorCriticPolicy) and type(halves[0]) is NetActor
    if not ours or type(halves[1]) is not NetCritic:
        return Misfit("this algorithm", "one with an actor and a critic for all agents, like mappo")
    return one_gaussian(policy)


def shapes(policy: Any) -> tuple[Shape, Shape]:
    """Of actor and critic."""
    return policy.actor.shape, policy.critic.shape


def required(policy: Any, **options: Any) -> Misfit | None:
    """The first option of both networks' shapes that is not as the reference has it."""
    for shape in shapes(policy):
        for option, value in options.items():
            if getattr(shape, option) != value:
                return Misfit(f"net.{option}={getattr(shape, option)!r}", repr(value))
    return None
