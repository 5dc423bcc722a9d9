"""The Multi-Agent Transformer and its variants: one file, `transformer_N.pt`."""

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from jmarl.errors import ConfigError
from jmarl.policies.base import Policy
from jmarl.policies.mat import MatPolicy
from jmarl.references.base import (
    GRU_NAMES,
    LEAF_NAMES,
    Misfit,
    Reference,
    Rename,
    Shown,
    Weights,
    one_gaussian,
)

STATE_SIZE = 37  # of the zeros that the reference has in place of the global state
EACH = re.compile(r"^decoder\.mlp\.(\d+)\.(\d+\..+)$")  # one agent's actor in mat_dec
NAMES: list[Rename] = [
    (r"^obs\b", "decoder.obs"),  # mat_decoder
    (r"^val_head\b", "decoder.val_head"),
    (r"^act_head\b", "encoder.act_head"),  # mat_encoder
    (r"^log_std$", "encoder.log_std"),
    (r"\bactor\.ln_([012])\b", lambda m: f"mlp.{3 * int(m[1])}"),  # mat_dec
    (r"\bactor\.dense_([12])\b", lambda m: f"mlp.{3 * int(m[1]) - 2}"),
    (r"\bactor\.out\b", "mlp.7"),
    *GRU_NAMES,
    (r"\bblock_(\d+)\b", r"blocks.\1"),
    (r"\bobs\.ln\b", "obs_encoder.0"),
    (r"\bobs\.dense\b", "obs_encoder.1"),
    (r"\bembed\b", "action_encoder.0"),
    (r"\bmlp\.hidden\b", "mlp.0"),
    (r"\bmlp\.out\b", "mlp.2"),
    (r"head\.hidden\b", "head.0"),
    (r"head\.ln\b", "head.2"),
    (r"head\.out\b", "head.3"),
    *LEAF_NAMES,
]


def _prefix(names: Collection[str]) -> str | None:
    return "" if any(name.startswith(("encoder.", "decoder.")) for name in names) else None


def _renames(policy: Policy) -> Sequence[Rename]:
    del policy
    return NAMES


def _misfit(policy: Any) -> Misfit | None:
    if not isinstance(policy, MatPolicy):
        return Misfit("this algorithm", "mat or one of its variants")
    return one_gaussian(policy)


def _shown(weights: Weights) -> Shown:
    """The variant, width and number of blocks. The number of heads leaves no trace."""
    _check_encoder(weights)
    variant = _variant(weights)
    norm = weights.get("encoder.ln.weight", weights.get("decoder.ln.weight"))
    options: dict[str, Any] = {} if norm is None else {"net.n_embd": len(norm)}
    blocks = [int(n[1]) for name in weights if (n := re.search(r"\bblocks\.(\d+)\.", name))]
    if blocks:
        options["net.n_block"] = 1 + max(blocks)
    if variant == "mat_dec":
        options["net.share_actor"] = "decoder.mlp.0.weight" in weights
    return Shown((variant,), options)


def _variant(weights: Weights) -> str:
    if any(name.startswith("decoder.mlp.") for name in weights):
        return "mat_dec"
    if any(name.startswith("encoder.gru.") for name in weights):
        return "mat_gru"
    if not any(name.startswith("decoder.") for name in weights):
        return "mat_encoder"
    return "mat" if any(name.startswith("encoder.") for name in weights) else "mat_decoder"


def _check_encoder(weights: Weights) -> None:
    """With `--encode_state` MAT saves the same names, but its encoder reads the state, which is
    zero, instead of observations. Only then do the biases of the state encoder become non-zero."""
    for name, weight in weights.items():
        if re.match(r"encoder\.state_encoder\..*bias$", name) and weight.any():
            raise ConfigError(
                f"{name} is not zero, so the checkpoint was trained with --encode_state, which "
                "encodes a state of zeros instead of observations. jmarl has no such network: "
                "train it without --encode_state."
            )


def _joined(weights: Weights, policy: Policy) -> Weights:
    """The agents' separate actors on a leading axis, named like a shared actor."""
    del policy
    _check_encoder(weights)
    each: dict[str, dict[int, np.ndarray]] = {}
    kept = {}
    for name, weight in weights.items():
        if found := EACH.match(name):
            each.setdefault(f"decoder.mlp.{found[2]}", {})[int(found[1])] = weight
        else:
            kept[name] = weight
    return kept | {name: np.stack([w for _, w in sorted(x.items())]) for name, x in each.items()}


def _split(weights: Weights, policy: Any) -> Weights:
    """The agents' actors apart, with what the reference saves besides."""
    if policy.variant != "mat_dec" or policy.share_actor:
        return weights | _unread(weights, policy)
    kept = {}
    for name, weight in weights.items():
        if found := re.match(r"^decoder\.mlp\.(\d+\..+)$", name):
            kept |= {f"decoder.mlp.{i}.{found[1]}": own for i, own in enumerate(weight)}
        else:
            kept[name] = weight
    return kept | _unread(weights, policy)


def _unread(weights: Weights, policy: Any) -> Weights:
    """Weights and masks that no network reads, but that `load_state_dict` asks for."""
    found: Weights = {}
    size, variant = max(policy.obs_sizes), policy.variant
    if variant != "mat_decoder":
        found |= _input_encoder("encoder.state_encoder", STATE_SIZE, policy.n_embd)
    if variant in ("mat", "mat_gru"):
        found |= _input_encoder("decoder.obs_encoder", size, policy.n_embd)
    agents = policy.num_agents + 1
    mask = np.tril(np.ones((1, 1, agents, agents), np.float32))
    attentions = {n[1] for name in weights if (n := re.match(r"(.*\.attn\d?)\.key\.", name))}
    return found | {f"{attention}.mask": mask for attention in sorted(attentions)}


def _input_encoder(name: str, size: int, width: int) -> Weights:
    """LayerNorm and Linear as they would be if they had never been used."""
    one, zero = np.ones(size, np.float32), np.zeros(size, np.float32)
    kernel, bias = np.zeros((width, size), np.float32), np.zeros(width, np.float32)
    return {
        f"{name}.0.weight": one,
        f"{name}.0.bias": zero,
        f"{name}.1.weight": kernel,
        f"{name}.1.bias": bias,
    }


MAT = Reference(
    name="mat",
    prefix=_prefix,
    shown=_shown,
    renames=_renames,
    joined=_joined,
    split=_split,
    unread=re.compile(r"^encoder\.state_encoder\.|^decoder\.obs_encoder\.|\.mask$"),
    unseen=("net.n_head",),
    misfit=_misfit,
)
