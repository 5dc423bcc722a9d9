"""XuanCe's MAPPO and IPPO: one file. Version 1 saves `{"policy": …}` with a key for each network,
`actor.agent_0.model.0.weight`; in 2023 there was one network for all agents, `actor.pi_logits`.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

from jmarl.envs.spaces import Box, MultiDiscrete
from jmarl.networks.torso import Shape
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
    renamed,
    widths,
)

REPRESENTATIONS = {"actor": "representation", "critic": "representation_critic"}
VERSION_1 = re.compile(r"^(actor|critic)(?:_representation)?\.([^.]+)\.")
# Names of version 1, without the key of the network → those of 2023.
EARLIER: list[Rename] = [
    (r"^actor_representation\.", "representation."),
    (r"^critic_representation\.", "representation_critic."),
    (r"^actor\.model\.", "actor.pi_logits."),
    (r"^actor\.logstd$", "actor.log_std"),
]
LATER: list[Rename] = [
    (r"^representation\.", "actor_representation."),
    (r"^representation_critic\.", "critic_representation."),
    (r"^actor\.pi_logits\.", "actor.model."),
    (r"^actor\.log_std$", "actor.logstd"),
]
NAMES_2023 = ("pi_logits", "mu", "log_std", "model")  # what follows `actor.` or `critic.`


def version_1_keys(weights: Collection[str]) -> list[str]:
    """The keys of the networks, in the order of agents; none in files of 2023."""
    found = (VERSION_1.match(name) for name in weights)
    keys = dict.fromkeys(match[2] for match in found if match)
    return [key for key in keys if key not in NAMES_2023]


def of_key(weights: Weights, key: str) -> Weights:
    """The networks with this key, by the names of 2023."""
    found = ((VERSION_1.match(name), name) for name in weights)
    own = {n: n.replace(f".{key}.", ".", 1) for match, n in found if match and match[2] == key}
    return {renamed(short, EARLIER): weights[name] for name, short in own.items()}


def with_key(weights: Weights, key: str) -> Weights:
    """The inverse of `of_key`."""
    later = {renamed(name, LATER): weight for name, weight in weights.items()}
    return {name.replace(".", f".{key}.", 1): weight for name, weight in later.items()}


def _prefix(names: Collection[str]) -> str | None:
    beginnings = ("representation", "actor_representation", "critic_representation")
    return "" if any(name.startswith(beginnings) for name in names) else None


def _shown(weights: Weights) -> Shown:
    """The activations leave no trace."""
    options: dict[str, Any] = {"net.agent_id": "none"}
    layers = 0
    for network, representation in REPRESENTATIONS.items():
        prefix = "" if network == "actor" else "critic_"
        hidden = _widths(weights, rf"{representation}\.(?:model|mlp)")
        head = _widths(weights, rf"{network}\.(?:pi_logits|mu|model)")[:-1]
        if not hidden:
            continue
        options |= {f"net.{prefix}hidden": hidden, f"net.{prefix}head_hidden": head}
        options["net.layer_norm"] = any(
            weight.ndim == 1 and re.match(rf"{representation}\.(model|mlp)\.\d+\.weight", name)
            for name, weight in weights.items()
        )
        options["net.input_norm"] = f"{representation}.input_norm.weight" in weights
        layers = sum(n.startswith(f"{representation}.rnn.weight_ih_l") for n in weights)
        if _input(weights, rf"{network}\.(?:pi_logits|mu|model)") > hidden[-1]:
            options["net.agent_id"] = "features"
    if not layers:
        return Shown(("mappo", "ippo"), options)
    normed = any(".norm_rnn." in name for name in weights)
    options |= {"net.gru_layers": layers, "net.gru_norm": normed}
    return Shown(("rmappo", "rippo"), options)


def _widths(weights: Weights, layers: str) -> tuple[int, ...]:
    """Outputs of linear layers; normalisations have vectors."""
    linear = {name: weight for name, weight in weights.items() if weight.ndim == 2}
    return widths(linear, rf"{layers}\.(\d+)\.weight")


def _input(weights: Weights, layers: str) -> int:
    """How many features the first layer reads."""
    found = (
        w.shape[1] for name, w in weights.items() if re.fullmatch(rf"{layers}\.0\.weight", name)
    )
    return next(found, 0)


def _renames(policy: Any) -> Sequence[Rename]:
    head = "mu" if isinstance(policy.space, Box) else "pi_logits"
    actor, critic = shapes(policy)
    return [
        *_network("actor", f"actor.{head}", actor),
        (r"^actor\.(log_std)$", r"actor.\1"),
        *_network("critic", "critic.model", critic),
        *GRU_NAMES,
        *LEAF_NAMES,
    ]


def _network(network: str, head: str, shape: Shape) -> list[Rename]:
    """Positions in a torch Sequential: a linear layer, its activation, and a norm if there is
    one."""
    step = 3 if shape.layer_norm else 2
    read = REPRESENTATIONS[network]
    layers = f"{read}.{'mlp' if shape.recurrent else 'model'}"

    def at(place: str, offset: int) -> Any:
        return lambda m: f"{place}.{step * int(m[1]) + offset}"

    return [
        (rf"^{network}\.input_norm\b", f"{read}.input_norm"),
        (rf"^{network}\.dense_(\d+)\b", at(layers, 0)),
        (rf"^{network}\.ln_(\d+)\b", at(layers, 2)),
        (rf"^{network}\.gru_norm\b", f"{read}.norm_rnn"),
        (rf"^{network}\.gru\b", f"{read}.rnn"),
        (rf"^{network}\.head_dense_(\d+)\b", at(head, 0)),
        (rf"^{network}\.head_ln_(\d+)\b", at(head, 2)),
        (rf"^{network}\.out\b", f"{head}.{step * len(shape.head_hidden)}"),
    ]


def _misfit(policy: Any) -> Misfit | None:
    if misfit := other_policy(policy):
        return misfit
    shape = policy.actor.shape
    normed = shape.layer_norm and shape.recurrent
    options: dict[str, Any] = {"layer_norm": shape.layer_norm, "input_norm": normed}
    if shape.recurrent:
        options["gru_norm"] = normed
    if misfit := required(policy, **options):
        return misfit
    if policy.num_agents > 1 and policy.actor.agent_id != "features":
        return Misfit(f"net.agent_id={policy.actor.agent_id!r}", "'features'")
    if isinstance(policy.space, MultiDiscrete):
        return Misfit("actions='multidiscrete'", "another form of actions")
    return None


def _joined(weights: Weights, policy: Policy) -> Weights:
    del policy
    return weights


XUANCE = Reference(
    name="xuance",
    prefix=_prefix,
    shown=_shown,
    renames=_renames,
    joined=_joined,
    split=_joined,
    unread=re.compile(r"^mixer\."),
    unseen=("net.activation", "net.squash_mean"),
    misfit=_misfit,
)
XUANCE_2023 = XUANCE._replace(name="xuance-2023")
