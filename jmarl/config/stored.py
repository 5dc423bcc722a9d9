"""Configurations that runs have stored, of this version of jmarl or an earlier one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jmarl.config.algorithms import TRANSFORMERS
from jmarl.config.options import REMOVED
from jmarl.config.train_config import applicable
from jmarl.config.yaml_files import read_yaml
from jmarl.plugins import load_recorded


def read_stored(path: Path) -> dict[str, Any]:
    """The options of a run, from its config.yaml. Earlier versions stored all options, whether the
    run's algorithm used them or not; those that it did not use are left out. The run's plug-ins are
    imported again."""
    return as_it_ran(read_yaml(path, "configuration", stored=True))


def as_it_ran(values: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a stored run, in the form that this version accepts. The run is the same. Its
    plug-ins are imported."""
    known = _with_distribution(values)
    if "plugins" in known:
        known["plugins"] = load_recorded(known["plugins"])
    known = applicable(known)
    for section, inner in known.items():
        if isinstance(inner, Mapping):
            known[section] = without_removed(inner, f"{section}.")
    return known


def without_removed(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Options by name, `prefix` before each, without those that have been removed since."""
    return {
        name: value
        for name, value in values.items()
        if f"{prefix}{name}" not in REMOVED or value != REMOVED[f"{prefix}{name}"]
    }


def _with_distribution(values: Mapping[str, Any]) -> dict[str, Any]:
    """All options are stored, so a run without net.distribution is of the versions that had only
    Gaussians. Transformers do not use net.squash_mean, but in later versions it chose their default
    distribution."""
    net = values.get("net")
    if not isinstance(net, Mapping):
        return dict(values)
    chose = values.get("algorithm") in TRANSFORMERS and net.get("squash_mean") is True
    if "distribution" not in net or (chose and net["distribution"] is None):
        return {**values, "net": {**net, "distribution": "gaussian"}}
    return dict(values)
