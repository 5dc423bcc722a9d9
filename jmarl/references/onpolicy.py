"""on-policy's MAPPO and IPPO: `actor.pt` and `critic.pt`; of the separated runner a pair for each
agent, `actor_agent0.pt` and so on, with the statistics of its returns, `vnrom_agent0.pt` (its
spelling).

Names of several files together begin with `actor.`, `critic.` and `value_norm.`.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from jmarl.envs.spaces import Box, MultiDiscrete
from jmarl.errors import ConfigError
from jmarl.policies.base import Policy
from jmarl.references.actor_critic import other_policy, required, shapes
from jmarl.references.base import (
    GRU_NAMES,
    LEAF_NAMES,
    Misfit,
    Reference,
    Rename,
    Shown,
    Weights,
    widths,
)

NETWORKS = ("actor", "critic")
HEAD = re.compile(r"actor\.act\.action_outs?\.(?:\d+\.)?(?:linear|fc_mean)\.(weight|bias)$")
LOG_STD = "actor.act.action_out.logstd._bias"
NAMES: list[Rename] = [
    (r"^actor\.out\b", "actor.act.out"),
    (r"^actor\.log_std$", "actor.act.log_std"),
    (r"^critic\.out\b", "critic.v_out"),
    (r"\.input_norm\b", ".base.feature_norm"),
    (r"\.dense_0\b", ".base.mlp.fc1.0"),
    (r"\.ln_0\b", ".base.mlp.fc1.2"),
    (r"\.dense_(\d+)\b", lambda m: f".base.mlp.fc2.{int(m[1]) - 1}.0"),
    (r"\.ln_(\d+)\b", lambda m: f".base.mlp.fc2.{int(m[1]) - 1}.2"),
    (r"\.gru_norm\b", ".rnn.norm"),
    (r"\.gru\b", ".rnn.rnn"),
    *GRU_NAMES,
    *LEAF_NAMES,
]


def _prefix(names: Collection[str]) -> str | None:
    """Which of the files has these names."""

    def has(*beginnings: str) -> bool:
        return any(name.startswith(beginnings) for name in names)

    if has("running_mean"):
        return "value_norm."
    if has("act."):
        return "actor."
    return "critic." if has("base.", "rnn.", "v_out.") else None


def _shown(weights: Weights) -> Shown:
    """The activation leaves no trace."""
    _check_popart(weights)
    options: dict[str, Any] = {}
    for network, option in zip(NETWORKS, ("net.hidden", "net.critic_hidden"), strict=True):
        first = widths(weights, rf"{network}\.base\.mlp\.fc1()\.0\.weight")
        later = widths(weights, rf"{network}\.base\.mlp\.fc2\.(\d+)\.0\.weight")
        if first:
            options[option] = first + later
            options["net.input_norm"] = f"{network}.base.feature_norm.weight" in weights
    layers = max(_gru_layers(weights, network) for network in NETWORKS)
    if not layers:
        return Shown(("mappo", "ippo"), options)
    return Shown(("rmappo", "rippo"), options | {"net.gru_layers": layers})


def _gru_layers(weights: Weights, network: str) -> int:
    return sum(name.startswith(f"{network}.rnn.rnn.weight_ih_l") for name in weights)


def _check_popart(weights: Weights) -> None:
    critic = [name for name in weights if name.startswith("critic.")]
    if critic and "critic.v_out.weight" not in weights:
        raise ConfigError(
            "the critic's checkpoint has no output layer v_out, which on-policy's PopArt does not "
            "save when it runs on a GPU: its values cannot be restored."
        )


def _renames(policy: Policy) -> Sequence[Rename]:
    del policy
    return NAMES


def _misfit(policy: Any) -> Misfit | None:
    if misfit := other_policy(policy) or required(
        policy, layer_norm=True, gru_norm=True, head_hidden=()
    ):
        return misfit
    actor = policy.actor
    if actor.squash_mean:
        return Misfit("net.squash_mean=True", "False")
    if actor.agent_id == "features":
        return Misfit("net.agent_id='features'", "'none' or 'obs'")
    sizes = {size for shape in shapes(policy) for size in shape.hidden}
    if len(sizes) > 1:
        return Misfit(f"net.hidden={actor.shape.hidden!r}", "one width for all layers")
    return None


def _joined(weights: Weights, policy: Policy) -> Weights:
    """An actor's last layer has one name for all kinds of actions: `linear` of a single choice,
    several `action_outs`, which are concatenated, or a Gaussian's `fc_mean` and `logstd`."""
    del policy
    _check_popart(weights)
    heads: dict[str, list[np.ndarray]] = {}
    kept = {}
    for name in sorted(weights, key=_by_number):
        if found := HEAD.match(name):
            heads.setdefault(f"actor.act.out.{found[1]}", []).append(weights[name])
        elif name == LOG_STD:
            kept["actor.act.log_std"] = weights[name].reshape(-1)
        else:
            kept[name] = weights[name]
    return kept | {name: np.concatenate(arrays) for name, arrays in heads.items()}


def _by_number(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _split(weights: Weights, policy: Any) -> Weights:
    """The actor's last layer as on-policy has it for the policy's actions."""
    space, kept = policy.space, {}
    for name, weight in weights.items():
        found = re.match(r"actor\.act\.(out\.weight|out\.bias|log_std)$", name)
        part = found[1].removeprefix("out.") if found else ""
        if not found:
            kept[name] = weight
        elif part == "log_std":
            kept[LOG_STD] = weight.reshape(-1, 1)
        elif isinstance(space, MultiDiscrete):
            ends = np.cumsum(space.heads)[:-1]
            for i, own in enumerate(np.split(weight, ends)):
                kept[f"actor.act.action_outs.{i}.linear.{part}"] = own
        else:
            layer = "fc_mean" if isinstance(space, Box) else "linear"
            kept[f"actor.act.action_out.{layer}.{part}"] = weight
    return kept


ON_POLICY = Reference(
    name="on-policy",
    prefix=_prefix,
    shown=_shown,
    renames=_renames,
    joined=_joined,
    split=_split,
    unread=re.compile(
        r"\.base\.mlp\.fc_h\.|^critic\.v_out\.(stddev|mean|mean_sq|debiasing_term)$|^value_norm\."
    ),
    unseen=("net.activation",),
    misfit=_misfit,
)
