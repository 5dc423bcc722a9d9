"""The continuous PPO trainer: `ppo_best.pt` and `ppo_last.pt`, with `actor_mean`, `actor_logstd`,
`critic` and the optimiser.

The trainer normalises observations, but does not save the statistics. jmarl writes them, and reads
them where they are: `obs_rms`, with the `mean`, `var` and `count` of gymnasium's RunningMeanStd.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

from jmarl.envs.spaces import Box
from jmarl.policies.base import Policy
from jmarl.references.actor_critic import other_policy, required, shapes
from jmarl.references.base import LEAF_NAMES, Misfit, Reference, Rename, Shown, Weights, widths


def _prefix(names: Collection[str]) -> str | None:
    return "" if any(name.startswith("actor_mean.") for name in names) else None


def _shown(weights: Weights) -> Shown:
    actor, critic = (widths(weights, rf"{n}\.(\d+)\.weight") for n in ("actor_mean", "critic"))
    options: dict[str, Any] = {
        "net.hidden": actor[:-1],
        "net.activation": "tanh",
        "net.layer_norm": False,
        "net.input_norm": False,
    }
    return Shown(("ppo", "ippo"), options | ({"net.critic_hidden": critic[:-1]} if critic else {}))


def _renames(policy: Policy) -> Sequence[Rename]:
    actor, critic = (len(shape.hidden) for shape in shapes(policy))
    return [
        (r"^actor\.log_std$", "actor_logstd"),
        (r"^actor\.dense_(\d+)\b", lambda m: f"actor_mean.{2 * int(m[1])}"),
        (r"^actor\.out\b", f"actor_mean.{2 * actor}"),
        (r"^critic\.dense_(\d+)\b", lambda m: f"critic.{2 * int(m[1])}"),
        (r"^critic\.out\b", f"critic.{2 * critic}"),
        *LEAF_NAMES,
    ]


def _misfit(policy: Any) -> Misfit | None:
    if misfit := other_policy(policy) or required(
        policy,
        layer_norm=False,
        input_norm=False,
        head_hidden=(),
        activation="tanh",
        recurrent=False,
    ):
        return misfit
    if not isinstance(policy.space, Box):
        return Misfit("a world of discrete actions", "one of continuous actions")
    if policy.actor.squash_mean:
        return Misfit("net.squash_mean=True", "False")
    if policy.num_agents > 1:
        return Misfit(f"a team of {policy.num_agents} agents", "a world of one agent")
    return None


def _joined(weights: Weights, policy: Policy) -> Weights:
    """The trainer's log_std is a row."""
    del policy
    kept = dict(weights)
    if (log_std := weights.get("actor_logstd")) is not None:
        kept["actor_logstd"] = log_std.reshape(-1)
    return kept


def _split(weights: Weights, policy: Policy) -> Weights:
    del policy
    return weights | {"actor_logstd": weights["actor_logstd"].reshape(1, -1)}


PPO = Reference(
    name="ppo",
    prefix=_prefix,
    shown=_shown,
    renames=_renames,
    joined=_joined,
    split=_split,
    unread=re.compile(r"^obs_rms\."),
    unseen=(),
    misfit=_misfit,
)
