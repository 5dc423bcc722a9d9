"""Which of a policy's parameters are an actor's, a critic's or an encoder's, by dotted path."""

import re
from collections.abc import Collection

from jmarl.errors import ConfigError
from jmarl.literals import InitParts
from jmarl.policies.actor_critic import ActorCriticPolicy
from jmarl.policies.base import Policy
from jmarl.policies.mat import MatPolicy

# What follows the representation of observations in an actor-critic.
OUTPUTS = re.compile(r"^(actor|critic)\.(head_|out\b|log_std$)")
MAT_ENCODER = ("encoder.", "obs.")  # the latter: of mat_decoder
MAT_VALUES = "val_head."  # of mat_decoder


def selected(policy: Policy, names: Collection[str], part: InitParts) -> set[str]:
    """The names of the parameters that belong to the part. An encoder is what reads observations:
    MAT's encoder, which also gives its values, or all but the last layers of actor and critic."""
    if part == "all":
        return set(names)
    if isinstance(policy, MatPolicy):
        found = {name for name in names if _of_transformer(name, part)}
    elif isinstance(policy, ActorCriticPolicy) and part == "encoder":
        found = {name for name in names if not OUTPUTS.match(name)}
    else:
        found = {name for name in names if name.startswith(f"{part}.")}
    if not found:
        has = ", ".join(sorted({name.partition(".")[0] for name in names}))
        raise ConfigError(
            f"init_parts={part!r} names no part of this policy, whose parameters are of {has}: "
            "choose another part, or 'all'."
        )
    return found


def _of_transformer(name: str, part: InitParts) -> bool:
    if name.startswith(MAT_ENCODER):
        return part == "encoder"
    return part == "actor" and not name.startswith(MAT_VALUES)
