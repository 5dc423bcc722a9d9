"""Reference checkpoints into jmarl: a `.pt` state_dict becomes a parameter tree.

MAT saves weights that no computation reads (`state_encoder`, the decoder's `obs_encoder`) and
attention masks, on-policy a layer that it clones and never calls (`fc_h`); they are passed over.
So are the statistics that a PopArt critic keeps beside its weights: `read_value_norm` reads them.
Everything else must fit exactly.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.errors import ConfigError
from jmarl.learning.running_statistics import ValueNorm
from jmarl.literals import Transformer
from jmarl.policies.actor_critic import ActorCriticPolicy
from jmarl.policies.mat import MatPolicy

Weights = Mapping[str, np.ndarray]
DEAD = re.compile(
    r"^encoder\.state_encoder\.|^decoder\.obs_encoder\.|\.mask$|^base\.mlp\.fc_h\."
    r"|^v_out\.(stddev|mean|mean_sq|debiasing_term)$"
)
Rename = tuple[str, str | Callable[[re.Match[str]], str]]
EACH = re.compile(r"^decoder\.mlp\.(\d+)\.(\d+\..+)$")  # an agent's own actor in mat_dec
# our module path → the reference's, both dotted
GRU_NAMES = [
    (r"\binput_(\d)\.kernel$", r"weight_ih_l\1"),
    (r"\binput_(\d)\.bias$", r"bias_ih_l\1"),
    (r"\bhidden_(\d)\.kernel$", r"weight_hh_l\1"),
    (r"\bhidden_(\d)\.bias$", r"bias_hh_l\1"),
]
MAT_NAMES = [
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
    (r"\.(kernel|scale)$", ".weight"),
]
ONPOLICY_NAMES = [
    (r"^input_norm\b", "base.feature_norm"),
    (r"^dense_0\b", "base.mlp.fc1.0"),
    (r"^ln_0\b", "base.mlp.fc1.2"),
    (r"^dense_(\d+)\b", lambda m: f"base.mlp.fc2.{int(m[1]) - 1}.0"),
    (r"^ln_(\d+)\b", lambda m: f"base.mlp.fc2.{int(m[1]) - 1}.2"),
    (r"^gru_norm\b", "rnn.norm"),
    (r"^gru\b", "rnn.rnn"),
    *GRU_NAMES,
    (r"\.(kernel|scale)$", ".weight"),
]
ACTOR_NAMES = [(r"^out\b", "act.out"), (r"^log_std$", "act.log_std"), *ONPOLICY_NAMES]
CRITIC_NAMES = [(r"^out\b", "v_out"), *ONPOLICY_NAMES]


def read_mat(path: str | Path, policy: MatPolicy) -> Any:
    """The parameters of `policy` from a reference MAT checkpoint."""
    return convert_mat(_read(path), policy)


def read_onpolicy(actor: str | Path, critic: str | Path, policy: ActorCriticPolicy) -> Any:
    """The parameters of `policy` from on-policy's `actor.pt` and `critic.pt`."""
    return convert_onpolicy(_read(actor), _read(critic), policy)


def read_onpolicy_separated(
    directory: str | Path, policies: Sequence[ActorCriticPolicy]
) -> tuple[Any, ...]:
    """The parameters of every agent's policy (`net.share='none'`) from what on-policy's separated
    runner saves: `actor_agent0.pt`, `critic_agent0.pt`, and so on, one pair for each agent."""
    directory, count = Path(directory), len(policies)
    if any(policy.num_agents > 1 for policy in policies):
        raise ConfigError(
            "checkpoints of the separated runner are a network for each agent: choose "
            "net.share='none'."
        )
    if (extra := directory / f"actor_agent{count}.pt").exists():
        raise ConfigError(f"{str(extra)!r} exists, but there are policies of {count} agents.")
    parts = ("actor", "critic")
    files = [[directory / f"{part}_agent{i}.pt" for part in parts] for i in range(count)]
    pairs = zip(files, policies, strict=True)
    return tuple(read_onpolicy(actor, critic, policy) for (actor, critic), policy in pairs)


def read_value_norm(path: str | Path) -> ValueNorm:
    """on-policy's running statistics of returns: an agent's `vnrom_agent0.pt` (its spelling), or
    a critic that was trained with PopArt."""
    return convert_value_norm(_read(path))


def _read(path: str | Path) -> Weights:
    """Needs torch; nothing is unpickled but tensors."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError(
            "reading a torch checkpoint needs torch: pip install torch==2.13.0."
        ) from None
    try:
        state_dict = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ConfigError(f"checkpoint {str(path)!r} does not exist.") from None
    except Exception as error:
        raise ConfigError(f"checkpoint {str(path)!r} is not a state_dict: {error}") from None
    return {name: tensor.numpy() for name, tensor in state_dict.items()}


def convert_mat(state_dict: Weights, policy: MatPolicy) -> Any:
    """Reference names and layouts → jmarl's; refused unless names and shapes agree."""
    _check_distribution(policy)
    _check_sighted(state_dict)
    try:
        return _converted_mat(state_dict, policy)
    except ConfigError as refusal:
        if options := _options_that_fit(state_dict, policy):
            raise ConfigError(
                f"the checkpoint does not fit this policy, but one with {options}."
            ) from refusal
        raise


def convert_onpolicy(actor: Weights, critic: Weights, policy: ActorCriticPolicy) -> Any:
    """Likewise for on-policy's two networks."""
    _check_distribution(policy)
    _check_memory(actor, policy)
    if not any(name.startswith("v_out.") for name in critic):
        raise ConfigError(
            "the critic's checkpoint has no output layer v_out, which on-policy's PopArt does not "
            "save when it runs on a GPU: its values cannot be restored."
        )
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    return {
        "actor": _filled(shapes["actor"], _one_output(actor), ACTOR_NAMES),
        "critic": _filled(shapes["critic"], critic, CRITIC_NAMES),
    }


def convert_value_norm(state_dict: Weights) -> ValueNorm:
    """The statistics of ValueNorm, or of a critic's PopArt layer."""
    for names in (
        ("running_mean", "running_mean_sq", "debiasing_term"),
        ("v_out.mean", "v_out.mean_sq", "v_out.debiasing_term"),
    ):
        if state_dict.keys() >= set(names):
            return ValueNorm.from_sums(*(float(state_dict[name].reshape(())) for name in names))
    raise ConfigError(
        "the checkpoint has no statistics of returns: neither running_mean, as vnrom_agent0.pt "
        "has, nor v_out.mean, as a PopArt critic has."
    )


def _check_distribution(policy: MatPolicy | ActorCriticPolicy) -> None:
    """The names and shapes of weights are the same for all distributions, their meaning is not."""
    if policy.continuous and policy.distribution != "gaussian":
        raise ConfigError(
            f"net.distribution={policy.distribution!r} cannot take a reference's weights, which "
            "belong to a Gaussian: choose 'gaussian'."
        )


def _check_sighted(state_dict: Weights) -> None:
    """With `--encode_state` MAT saves the same names, but its encoder reads the state, which is
    zero, and no observation. Only then do the biases of the state's encoder leave zero."""
    for name, weight in state_dict.items():
        if re.match(r"encoder\.state_encoder\..*bias$", name) and weight.any():
            raise ConfigError(
                f"{name} is not zero, so the checkpoint was trained with --encode_state, which "
                "encodes a state of zeros in place of observations: jmarl has no such network; "
                "train it without --encode_state."
            )


def _converted_mat(state_dict: Weights, policy: MatPolicy) -> Any:
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    return _filled(shapes, _stacked(state_dict), MAT_NAMES)


def _options_that_fit(state_dict: Weights, policy: MatPolicy) -> str | None:
    """The algorithm, number of blocks and sharing under which the checkpoint would fit."""
    found = [int(n[1]) for name in state_dict if (n := re.search(r"\bblocks\.(\d+)\.", name))]
    blocks = 1 + max(found, default=policy.n_block - 1)
    for variant in get_args(Transformer):
        for share_actor in (True, False) if variant == "mat_dec" else (policy.share_actor,):
            other = replace(policy, variant=variant, n_block=blocks, share_actor=share_actor)
            try:
                _converted_mat(state_dict, other)
            except ConfigError:
                continue
            needed = {"algorithm": variant, "net.n_block": blocks, "net.share_actor": share_actor}
            had = (policy.variant, policy.n_block, policy.share_actor)
            changed = zip(needed.items(), had, strict=True)
            return ", ".join(f"{name}={value!r}" for (name, value), old in changed if value != old)
    return None


def _check_memory(actor: Weights, policy: ActorCriticPolicy) -> None:
    recurrent = any(name.startswith("rnn.") for name in actor)
    if recurrent != policy.shape.recurrent:
        has, fits = ("a", "rmappo or rippo") if recurrent else ("no", "mappo or ippo")
        raise ConfigError(f"the checkpoint has {has} GRU: choose algorithm {fits}.")
    layers = sum(name.startswith("rnn.rnn.weight_ih_l") for name in actor)
    if recurrent and layers != policy.shape.gru_layers:
        raise ConfigError(
            f"net.gru_layers={policy.shape.gru_layers} does not fit the checkpoint, whose GRU has "
            f"{layers}: choose net.gru_layers={layers}."
        )


def _filled(shapes: Any, state_dict: Weights, renamed: list[Rename]) -> Any:
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
    names = {_reference_name(path, renamed): (path, leaf) for path, leaf in leaves}
    given = {name for name in state_dict if name in names or not DEAD.search(name)}
    if missing := sorted(names.keys() - given):
        raise ConfigError(f"the checkpoint lacks {', '.join(missing)}; is it of another network?")
    if strange := sorted(given - names.keys()):
        raise ConfigError(f"the checkpoint has unknown weights {', '.join(strange)}.")
    return tree.unflatten(
        [_fitting(name, state_dict[name], path, leaf) for name, (path, leaf) in names.items()]
    )


def _stacked(state_dict: Weights) -> Weights:
    """Agents' own actors on a leading axis, under the name that a shared one has."""
    each: dict[str, dict[int, np.ndarray]] = {}
    kept = {}
    for name, weight in state_dict.items():
        if found := EACH.match(name):
            each.setdefault(f"decoder.mlp.{found[2]}", {})[int(found[1])] = weight
        else:
            kept[name] = weight
    return kept | {name: np.stack([w for _, w in sorted(x.items())]) for name, x in each.items()}


def _one_output(actor: Weights) -> Weights:
    """An actor's last layer under one name, whatever its actions are: `linear` of a choice,
    several `action_outs` side by side, or a Gaussian's `fc_mean` and `logstd`."""
    kept = {name: weight for name, weight in actor.items() if not name.startswith("act.")}
    heads: dict[str, list[np.ndarray]] = {}
    for name in sorted(actor.keys() - kept.keys(), key=_by_number):
        found = re.match(r"act\.action_outs?\.(?:\d+\.)?(?:linear|fc_mean)\.(weight|bias)$", name)
        if found:
            heads.setdefault(f"act.out.{found[1]}", []).append(actor[name])
        elif name == "act.action_out.logstd._bias":
            kept["act.log_std"] = actor[name].reshape(-1)
        else:
            kept[name] = actor[name]
    return kept | {name: np.concatenate(parts) for name, parts in heads.items()}


def _by_number(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _reference_name(path: tuple[Any, ...], renamed: list[Rename]) -> str:
    name = ".".join(part.key for part in path)
    for ours, theirs in renamed:
        name = re.sub(ours, theirs, name)
    return name


def _fitting(name: str, weight: np.ndarray, path: tuple[Any, ...], leaf: Any) -> jax.Array:
    """torch keeps (out, in), Flax kernels are (in, out)."""
    transposed = path[-1].key == "kernel"
    shape = (*leaf.shape[:-2], *leaf.shape[:-3:-1]) if transposed else leaf.shape
    if weight.shape != shape:
        raise ConfigError(f"{name} has shape {weight.shape}, but this policy needs {shape}.")
    return jnp.asarray(np.swapaxes(weight, -1, -2) if transposed else weight)
