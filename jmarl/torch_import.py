"""Reference checkpoints into jmarl: a MAT `.pt` state_dict becomes a parameter tree.

The reference saves weights that no computation reads (`state_encoder`, the decoder's
`obs_encoder`) and attention masks; they are passed over. Everything else must fit exactly.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.errors import ConfigError
from jmarl.mat import MatPolicy

DEAD = re.compile(r"^encoder\.state_encoder\.|^decoder\.obs_encoder\.|\.mask$")
EACH = re.compile(r"^decoder\.mlp\.(\d+)\.(\d+\..+)$")  # an agent's own actor in mat_dec
# our module path → the reference's, both dotted
RENAMED = [
    (r"^obs\b", "decoder.obs"),  # mat_decoder
    (r"^val_head\b", "decoder.val_head"),
    (r"^act_head\b", "encoder.act_head"),  # mat_encoder
    (r"^log_std$", "encoder.log_std"),
    (r"\bactor\.ln_([012])\b", lambda m: f"mlp.{3 * int(m[1])}"),  # mat_dec
    (r"\bactor\.dense_([12])\b", lambda m: f"mlp.{3 * int(m[1]) - 2}"),
    (r"\bactor\.out\b", "mlp.7"),
    (r"\bgru\.input_(\d)\.kernel$", r"gru.weight_ih_l\1"),
    (r"\bgru\.input_(\d)\.bias$", r"gru.bias_ih_l\1"),
    (r"\bgru\.hidden_(\d)\.kernel$", r"gru.weight_hh_l\1"),
    (r"\bgru\.hidden_(\d)\.bias$", r"gru.bias_hh_l\1"),
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


def read_mat(path: str | Path, policy: MatPolicy) -> Any:
    """The parameters of `policy` from a reference checkpoint. Needs torch; nothing is unpickled
    but tensors."""
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
    return convert_mat({name: tensor.numpy() for name, tensor in state_dict.items()}, policy)


def convert_mat(state_dict: Mapping[str, np.ndarray], policy: MatPolicy) -> Any:
    """Reference names and layouts → jmarl's; refused unless names and shapes agree."""
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
    names = {reference_name(path): (path, leaf) for path, leaf in leaves}
    state_dict = _stacked(state_dict)
    given = {name for name in state_dict if name in names or not DEAD.search(name)}
    if missing := sorted(names.keys() - given):
        raise ConfigError(f"the checkpoint lacks {', '.join(missing)}; is it of another network?")
    if strange := sorted(given - names.keys()):
        raise ConfigError(f"the checkpoint has unknown weights {', '.join(strange)}.")
    return tree.unflatten(
        [_fitting(name, state_dict[name], path, leaf) for name, (path, leaf) in names.items()]
    )


def _stacked(state_dict: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Agents' own actors on a leading axis, under the name that a shared one has."""
    each: dict[str, dict[int, np.ndarray]] = {}
    kept = {}
    for name, weight in state_dict.items():
        if found := EACH.match(name):
            each.setdefault(f"decoder.mlp.{found[2]}", {})[int(found[1])] = weight
        else:
            kept[name] = weight
    return kept | {name: np.stack([w for _, w in sorted(x.items())]) for name, x in each.items()}


def reference_name(path: tuple[Any, ...]) -> str:
    name = ".".join(part.key for part in path)
    for ours, theirs in RENAMED:
        name = re.sub(ours, theirs, name)
    return name


def _fitting(name: str, weight: np.ndarray, path: tuple[Any, ...], leaf: Any) -> jax.Array:
    """torch keeps (out, in), Flax kernels are (in, out)."""
    transposed = path[-1].key == "kernel"
    shape = (*leaf.shape[:-2], *leaf.shape[:-3:-1]) if transposed else leaf.shape
    if weight.shape != shape:
        raise ConfigError(f"{name} has shape {weight.shape}, but this policy needs {shape}.")
    return jnp.asarray(np.swapaxes(weight, -1, -2) if transposed else weight)
