"""Files of torch: a checkpoint's weights as arrays, and arrays as a checkpoint. torch is needed for
nothing else, and nothing is unpickled but tensors."""

import io
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jmarl.errors import ConfigError, brief
from jmarl.runs.files import replace_bytes

Arrays = dict[str, np.ndarray]
WRAPPERS = ("policy", "state_dict", "model_state_dict", "model")  # what weights are found under
# what `DataParallel` and `torch.compile` put before names
ADDED = re.compile(r"(?:(?<=\.)|^)(?:module|_orig_mod)\.")
# what a checkpoint has besides weights
BESIDES = re.compile(r"optim|scheduler|rng_state|^epoch$|^step$|^config$|^args$", re.IGNORECASE)


def import_torch() -> Any:
    """torch, or one sentence that says how to install it."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError(
            "torch checkpoints need torch, which is not installed: pip install torch==2.13.0."
        ) from None
    return torch


def read(path: Path) -> Arrays:
    """The weights of a checkpoint by dotted name, without the optimiser and what else is beside
    them, and without the prefixes of wrapped modules."""
    stored = _loaded(path)
    for name in WRAPPERS:
        if isinstance(stored, Mapping) and isinstance(stored.get(name), Mapping):
            stored = stored[name]
    if not isinstance(stored, Mapping):
        raise ConfigError(
            f"checkpoint {str(path)!r} is not a state_dict, but a {type(stored).__name__}: save "
            "model.state_dict() instead."
        )
    found = {ADDED.sub("", name): tensor for name, tensor in _flat(stored, "").items()}
    if not found:
        raise ConfigError(f"checkpoint {str(path)!r} has no weights.")
    return {name: _array(tensor, name, path) for name, tensor in found.items()}


def write(path: Path, weights: Mapping[str, Any]) -> None:
    """A checkpoint; mappings within `weights` stay mappings. After a power failure there is the old
    file or the new one."""
    torch = import_torch()

    def tensors(x: Any) -> Any:
        if isinstance(x, Mapping):
            return {name: tensors(inner) for name, inner in x.items()}
        return torch.from_numpy(np.array(x))

    content = io.BytesIO()
    torch.save(tensors(weights), content)
    replace_bytes(path, content.getvalue())


def _loaded(path: Path) -> Any:
    torch = import_torch()
    given = f"checkpoint {brief(str(path))}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ConfigError(f"{given} does not exist.") from None
    except OSError as error:
        raise ConfigError(f"{given} cannot be read: {error.strerror or error}.") from None
    except Exception as error:  # torch raises many kinds
        raise ConfigError(f"{given} {_fault(str(error))}") from None


def _fault(told: str) -> str:
    """What is wrong with a file. torch's own message recommends to unpickle it."""
    if pickled := re.search(r"GLOBAL (\S+) was not", told):
        return (
            f"has pickled objects ({pickled[1]}), which jmarl does not load, because that can run "
            "any code: save model.state_dict() instead."
        )
    if "TorchScript" in told:
        return "is a TorchScript archive, not a state_dict: save model.state_dict() instead."
    return "is not a state_dict: torch.save has not written it, or it is damaged."


def _flat(stored: Mapping[Any, Any], prefix: str) -> dict[str, Any]:
    """Tensors by dotted name; numbers and words are no weights."""
    found = {}
    for key, value in stored.items():
        if not prefix and BESIDES.search(str(key)):
            continue
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        elif hasattr(value, "detach") or isinstance(value, np.ndarray | float | int):
            found[f"{prefix}{key}"] = value
    return found


def _array(tensor: Any, name: str, path: Path) -> np.ndarray:
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu().to_dense() if tensor.is_sparse else tensor.detach().cpu()
        small = str(tensor.dtype) in ("torch.bfloat16", "torch.float16")
        tensor = (tensor.float() if small else tensor).numpy()
    array = np.asarray(tensor)
    if not np.isfinite(array).all():
        raise ConfigError(f"checkpoint {str(path)!r} has NaN or infinity in {name}.")
    return array
