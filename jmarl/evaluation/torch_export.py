"""Writes the policy of a run as checkpoints of a reference, which that implementation loads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jmarl.algorithms.build import make_trainer
from jmarl.errors import ConfigError
from jmarl.learning.trainer import Trainer
from jmarl.literals import ReferenceName, Which
from jmarl.policies.base import Policy
from jmarl.references.base import Reference, Weights, to_weights
from jmarl.references.catalogue import fitting
from jmarl.references.statistics import obs_moments, value_sums
from jmarl.references.xuance import with_key
from jmarl.runs import torch_files
from jmarl.runs.saved_parameters import saved_arrays, saved_config, saved_parameters
from jmarl.types import PolicyState

ON_POLICY_FILES = {"actor": "actor", "critic": "critic", "value_norm": "vnrom"}


def write(
    run: Path, which: Which, directory: Path, name: ReferenceName | None = None
) -> tuple[ReferenceName, list[Path]]:
    """Whose checkpoint was written, and its files. `name`: of the reference; None: the first that
    has such networks."""
    torch_files.import_torch()
    config = saved_config(run)
    trainer, hyper = make_trainer(config)
    reference = fitting([player.policy for player in trainer.players], name)
    policies = saved_parameters(run, trainer, hyper, which)
    arrays = {} if config.ppo.value_norm == "none" else saved_arrays(run, which).arrays
    popart = config.ppo.value_norm == "popart"
    players = [
        _weights(reference, player.policy, policies[i], _value_norm(arrays, i), popart)
        for i, player in enumerate(trainer.players)
    ]
    files = _files(reference, players, trainer)
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        torch_files.write(directory / path, content)
    return reference.name, [directory / path for path in files]


def _weights(
    reference: Reference,
    policy: Policy,
    learned: PolicyState,
    norm: Mapping[str, Any] | None,
    popart: bool,
) -> Weights:
    """A player's networks, and the statistics that have a place beside them."""
    weights = to_weights(reference, learned.params, policy)
    if reference.name == "on-policy" and norm is not None:
        weights |= value_sums(norm, popart)
    if learned.obs_stats is not None:
        weights |= _observations(reference, learned.obs_stats)
    return weights


def _value_norm(arrays: Mapping[str, Any], player: int) -> dict[str, Any] | None:
    """The running statistics of returns, where they are stored and have learned."""
    prefix = f"learners.{player}.value_norm."
    own = {n.removeprefix(prefix): x for n, x in arrays.items() if n.startswith(prefix)}
    return own if own and own["updates"] else None


def _observations(reference: Reference, stats: Any) -> Weights:
    if reference.name != "ppo":
        raise ConfigError(
            f"ppo.normalise_obs=True does not go with checkpoints of {reference.name}, whose "
            "networks read observations as they are."
        )
    return obs_moments(vars(stats.obs))


def _files(reference: Reference, players: list[Weights], trainer: Trainer) -> dict[Path, Any]:
    """Contents by path. Teams have a directory each; agents of their own are numbered. XuanCe has
    one file for all."""
    spec, teams = trainer.env.spec, trainer.players
    if reference.name == "xuance":
        keyed = ((w, spec.agents[t.agents[0]]) for w, t in zip(players, teams, strict=True))
        whole = {n: x for weights, key in keyed for n, x in with_key(weights, key).items()}
        return {Path("final_train_model.pth"): {"policy": whole}}
    several, each = len(teams) > 1, all(len(team.agents) == 1 for team in teams)
    files = {}
    for i, (weights, team) in enumerate(zip(players, teams, strict=True)):
        inside = Path(team.name) if several and not each else Path()
        agent = f"_agent{i}" if several and each else ""
        for stem, content in _contents(reference, weights).items():
            files[inside / f"{stem}{agent}.pt"] = content
    return files


def _contents(reference: Reference, weights: Weights) -> dict[str, Any]:
    """One player's files, by the names that the reference gives them."""
    if reference.name == "on-policy":
        parts = {stem: _within(weights, network) for network, stem in ON_POLICY_FILES.items()}
        return {stem: part for stem, part in parts.items() if part}
    if reference.name == "ppo":
        return {"ppo_best": _nested(weights)}
    return {"transformer" if reference.name == "mat" else "final_train_model": weights}


def _within(weights: Weights, network: str) -> Weights:
    prefix = f"{network}."
    return {n.removeprefix(prefix): x for n, x in weights.items() if n.startswith(prefix)}


def _nested(weights: Weights) -> dict[str, Any]:
    """Networks that are saved apart: `actor_mean.0.weight` → `{"actor_mean": {"0.weight": …}}`."""
    found: dict[str, Any] = {}
    for name, weight in weights.items():
        network, dot, rest = name.partition(".")
        if dot:
            found.setdefault(network, {})[rest] = weight
        else:
            found[network] = weight
    return found
