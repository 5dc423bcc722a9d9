"""A state_dict becomes parameters, and parameters a state_dict. Each reference has one table of
names, which serves both directions.

Parameters are flat here, by dotted path: `actor.dense_0.kernel`.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from jmarl.envs.spaces import Box
from jmarl.errors import ConfigError
from jmarl.literals import ReferenceName
from jmarl.policies.base import Policy
from jmarl.types import Params

Weights = dict[str, np.ndarray]  # a player's whole state_dict; of several files with prefixes
Rename = tuple[str, str | Callable[[re.Match[str]], str]]  # pattern of jmarl's name → reference's
Wanted = Callable[[str], bool]  # whether a parameter, by its path, is to be read

LOG_STD = re.compile(r"log_?std")
SHOWN = 3  # names in a message

GRU_NAMES: list[Rename] = [
    (r"\binput_(\d+)\.kernel$", r"weight_ih_l\1"),
    (r"\binput_(\d+)\.bias$", r"bias_ih_l\1"),
    (r"\bhidden_(\d+)\.kernel$", r"weight_hh_l\1"),
    (r"\bhidden_(\d+)\.bias$", r"bias_hh_l\1"),
]
LEAF_NAMES: list[Rename] = [(r"\.(kernel|scale)$", ".weight")]


class Shown(NamedTuple):
    """What the shapes of weights show of the run that they belong to."""

    algorithms: tuple[str, ...]  # that have such networks
    options: dict[str, Any]  # by full name


class Misfit(NamedTuple):
    """Why a policy is none of a reference's."""

    given: str  # option=value
    remedy: str  # what follows "choose"


class Reference(NamedTuple):
    """What jmarl knows of the checkpoints of one implementation."""

    name: ReferenceName
    # what goes before the names in a file with these names; None: it is another reference's
    prefix: Callable[[Collection[str]], str | None]
    shown: Callable[[Weights], Shown]
    renames: Callable[[Policy], Sequence[Rename]]
    # layers that the reference has in parts become one, and the other way round
    joined: Callable[[Weights, Policy], Weights]
    split: Callable[[Weights, Policy], Weights]
    unread: re.Pattern[str]  # what the reference saves and its networks never read
    unseen: tuple[str, ...]  # options that change what weights compute, and leave no trace in them
    misfit: Callable[[Policy], Misfit | None]


def flat(params: Params) -> dict[str, Any]:
    """Parameters by dotted path."""
    return flatten_dict(params, sep=".")


def to_params(
    reference: Reference, weights: Weights, policy: Policy, wanted: Wanted | None = None
) -> Weights:
    """The parameters of `policy`, or those that are wanted. Of these all must be there, in the
    right shapes; weights that nobody knows are refused, unless only a part is wanted."""
    check_fit(reference, policy)
    _check_actions(weights, policy)
    shapes = flat(jax.eval_shape(policy.init, jax.random.key(0)))
    renames, given = reference.renames(policy), reference.joined(weights, policy)
    names = {ours: renamed(ours, renames) for ours in shapes}
    if wanted is None:
        known = set(names.values())
        unknown = [n for n in given if n not in known and not reference.unread.search(n)]
        if unknown:
            raise ConfigError(f"the checkpoint has unknown weights {_listed(unknown)}.")
    chosen = {ours: theirs for ours, theirs in names.items() if wanted is None or wanted(ours)}
    _check_complete(chosen, given)
    return {
        ours: _in_our_layout(ours, theirs, given[theirs], shapes[ours].shape)
        for ours, theirs in chosen.items()
    }


def to_weights(reference: Reference, params: Params, policy: Policy) -> Weights:
    """The state_dict of the reference's networks with these parameters."""
    check_fit(reference, policy)
    renames = reference.renames(policy)
    weights = {
        renamed(ours, renames): np.ascontiguousarray(_transposed(ours, np.asarray(array)))
        for ours, array in flat(params).items()
    }
    return reference.split(weights, policy)


def check_fit(reference: Reference, policy: Policy) -> None:
    """Refuse a policy whose parameters would mean something else there."""
    if misfit := misfit_of(reference, policy):
        raise ConfigError(
            f"{misfit.given} does not go with checkpoints of {reference.name}: choose "
            f"{misfit.remedy}."
        )


def misfit_of(reference: Reference, policy: Any) -> Misfit | None:
    """What the reference's networks have not; convolutions none of them has."""
    shape = getattr(getattr(policy, "actor", None), "shape", policy)
    if images := getattr(shape, "images", None):
        return Misfit(f"net.conv_features={images.features}", "no convolutions")
    return reference.misfit(policy)


def renamed(name: str, renames: Sequence[Rename]) -> str:
    for ours, theirs in renames:
        name = re.sub(ours, theirs, name)
    return name


def one_gaussian(policy: Any) -> Misfit | None:
    """Weights have the same names and shapes for all distributions, but not the same meaning."""
    if isinstance(policy.space, Box) and policy.distribution != "gaussian":
        return Misfit(f"net.distribution={policy.distribution!r}", "'gaussian'")
    return None


def widths(weights: Mapping[str, np.ndarray], pattern: str) -> tuple[int, ...]:
    """Outputs of the layers whose names match; the pattern's group counts them."""
    found = ((re.fullmatch(pattern, name), weight) for name, weight in weights.items())
    sizes = {int(match[1] or 0): weight.shape[0] for match, weight in found if match}
    return tuple(size for _, size in sorted(sizes.items()))


def _check_complete(names: Mapping[str, str], given: Weights) -> None:
    """`names`: jmarl's → the reference's, of all parameters that are to be read."""
    missing = {ours: theirs for ours, theirs in names.items() if theirs not in given}
    for network in dict.fromkeys(ours.partition(".")[0] for ours in missing):
        whole = [ours for ours in names if ours.startswith(f"{network}.")]
        if len(names) > len(whole) and all(ours in missing for ours in whole):
            raise ConfigError(
                f"the checkpoint has no weights of the {network}: give its file too, or take only "
                "the other part (init_parts)."
            )
    if missing:
        raise ConfigError(
            f"the checkpoint lacks {_listed(list(missing.values()))}; does it belong to another "
            "network?"
        )


def has_log_std(weights: Weights) -> bool:
    """Whether these are weights of a Gaussian's policy."""
    return any(LOG_STD.search(name) for name in weights)


def _check_actions(weights: Weights, policy: Policy) -> None:
    gaussian = has_log_std(weights)
    continuous = isinstance(getattr(policy, "space", None), Box)
    if gaussian and not continuous:
        raise ConfigError(
            "the checkpoint has a log_std of continuous actions, but the world's actions are not "
            "continuous: choose actions='continuous'."
        )


def _in_our_layout(
    ours: str, theirs: str, weight: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    found = _transposed(ours, weight) if weight.ndim == len(shape) else weight
    if found.shape != shape:
        needed = (*shape[:-2], *shape[:-3:-1]) if ours.endswith("kernel") else shape
        raise ConfigError(f"{theirs} has shape {weight.shape}, but this policy needs {needed}.")
    return found


def _transposed(ours: str, weight: np.ndarray) -> np.ndarray:
    """torch stores (out, in), Flax (in, out)."""
    return np.swapaxes(weight, -1, -2) if ours.endswith("kernel") else weight


def _listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(sorted(names)[:SHOWN]) + (f" and {more} more" if more > 0 else "")
