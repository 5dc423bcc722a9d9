"""Checkpoints of the references: which files belong to which player, and what of them becomes the
arrays of a run's state."""

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jmarl.config.train_config import Config
from jmarl.errors import ConfigError
from jmarl.policies.base import Player
from jmarl.references.base import Reference, Shown, Weights, has_log_std, to_params
from jmarl.references.catalogue import recognised
from jmarl.references.statistics import obs_moments_of, value_norm_of
from jmarl.references.xuance import of_key, version_1_keys
from jmarl.registry import is_like
from jmarl.runs import torch_files

SUFFIXES = (".pt", ".pth")
AGENT = re.compile(r"_agent(\d+)$")  # in the names of files of on-policy's separated runner
AGENT_NUMBER = re.compile(r"\d+$")
Selected = Callable[[int, str], bool]  # (player, parameter): whether it is to be read
# options that are None mean what another one says
SAME_AS = {"net.critic_hidden": "net.hidden", "net.critic_head_hidden": "net.head_hidden"}


class TorchCheckpoint(NamedTuple):
    """The files of one checkpoint."""

    reference: Reference
    players: dict[str, Weights]  # by the name of a team or an agent; one player has any name
    digests: dict[str, str]  # SHA-256 of every file


def is_checkpoint(path: Path) -> bool:
    """Whether an `init_from` that is no run names files of torch."""
    named = path.suffix in SUFFIXES or "," in str(path)
    return named or path.is_file() or (path.is_dir() and bool(_within(path)))


def read_checkpoint(given: Path) -> TorchCheckpoint:
    """Read `FILE.pt`, `ACTOR.pt,CRITIC.pt`, a directory of such files, or a directory with one of
    these for every team."""
    groups = _groups(given, _files(given))
    players: dict[str, Weights] = {}
    references: dict[str, Reference] = {}
    for name, paths in groups.items():
        reference, weights = _read_group(paths)
        references[reference.name] = reference
        keys = version_1_keys(weights) if reference.name == "xuance" else []
        players |= {key: of_key(weights, key) for key in keys} or {name: weights}
    if len(references) > 1:
        raise ConfigError(
            f"{str(given)!r} has checkpoints of several references: {', '.join(references)}."
        )
    digests = {str(path.absolute()): _digest(path) for own in groups.values() for path in own}
    return TorchCheckpoint(next(iter(references.values())), players, digests)


def shown(checkpoint: TorchCheckpoint) -> Shown:
    """What the checkpoint shows of the run that it belongs to."""
    return checkpoint.reference.shown(next(iter(checkpoint.players.values())))


def seen_options(checkpoint: TorchCheckpoint, algorithm: str) -> dict[str, Any]:
    """Options by full name, with which a run of this algorithm has such networks."""
    algorithms, options = shown(checkpoint)
    if not is_like(algorithm, algorithms):
        raise ConfigError(
            f"algorithm={algorithm!r} does not go with this checkpoint of "
            f"{checkpoint.reference.name}: choose {' or '.join(map(repr, algorithms))}."
        )
    weights = next(iter(checkpoint.players.values()))
    gaussian = {"net.distribution": "gaussian"} if has_log_std(weights) else {}
    apart = {"net.share": "none"} if len(checkpoint.players) > 1 and _numbered(checkpoint) else {}
    return options | gaussian | apart


def unseen_options(checkpoint: TorchCheckpoint, config: Config) -> dict[str, Any]:
    """Options that the checkpoint cannot show, as the run has them."""
    return {name: _option(config, name) for name in checkpoint.reference.unseen}


def _numbered(checkpoint: TorchCheckpoint) -> bool:
    """Whether its networks are of agents, not of teams."""
    return all(AGENT_NUMBER.search(name) for name in checkpoint.players)


def check_options(checkpoint: TorchCheckpoint, config: Config) -> None:
    """Refuse a run with other networks, by the names of the options that would fit."""
    algorithms, options = shown(checkpoint)
    wanted: dict[str, Any] = {}
    if not is_like(config.algorithm, algorithms):
        wanted["algorithm"] = algorithms[0]
    wanted |= {name: value for name, value in options.items() if _option(config, name) != value}
    if wanted:
        choose = ", ".join(f"{name}={value!r}" for name, value in wanted.items())
        raise ConfigError(
            f"the checkpoint of {checkpoint.reference.name} does not fit this run, but one with "
            f"{choose}."
        )


def state_arrays(
    checkpoint: TorchCheckpoint, players: Sequence[Player], selected: Selected | None = None
) -> dict[str, np.ndarray]:
    """Parameters and statistics by their names in a run's state. `selected`: which parameters, if
    not all."""
    found, reference = {}, checkpoint.reference
    for i, weights in enumerate(_by_player(checkpoint, players)):
        wanted = None if selected is None else partial(selected, i)
        params = to_params(reference, weights, players[i].policy, wanted)
        found |= {f"policies.{i}.params.{name}": array for name, array in params.items()}
        norm, obs = value_norm_of(weights), obs_moments_of(weights)
        found |= {f"learners.{i}.value_norm.{name}": x for name, x in (norm or {}).items()}
        found |= {f"policies.{i}.obs_stats.obs.{name}": x for name, x in (obs or {}).items()}
    return found


def _by_player(checkpoint: TorchCheckpoint, players: Sequence[Player]) -> list[Weights]:
    """The weights of every player of the run: by its name, or in the order of agents."""
    given, names = checkpoint.players, [player.name for player in players]
    if given.keys() == set(names):
        return [given[name] for name in names]
    if len(given) != len(names):
        remedy = "Give a directory with a directory for each of them."
        if len(given) > 1:
            remedy = "Agents with networks of their own need net.share='none'."
        raise ConfigError(
            f"the checkpoint has networks for another number of players: {len(given)}, not "
            f"{len(names)} ({', '.join(names)}). {remedy}"
        )
    if len(names) > 1 and not _numbered(checkpoint):
        raise ConfigError(
            f"the checkpoint has networks of {', '.join(given)}, this run of {', '.join(names)}."
        )
    return list(given.values())


def _option(config: Config, name: str) -> Any:
    section, _, leaf = name.rpartition(".")
    value = getattr(getattr(config, section) if section else config, leaf)
    return _option(config, SAME_AS[name]) if value is None and name in SAME_AS else value


def _files(given: Path) -> list[Path]:
    if given.is_dir():
        if found := _within(given):
            return found
        raise ConfigError(f"{str(given)!r} is neither a run nor a directory of torch checkpoints.")
    if given.exists() or "," not in str(given):
        return [given]
    return [Path(part.strip()) for part in str(given).split(",")]


def _within(directory: Path) -> list[Path]:
    """The files of a directory, or those of the directories in it."""
    for pattern in ("*", "*/*"):
        found = [path for path in directory.glob(pattern) if path.suffix in SUFFIXES]
        if found:
            return sorted(found)
    return []


def _groups(given: Path, paths: Sequence[Path]) -> dict[str, list[Path]]:
    """Files by player: an agent's number, or the directory of a team; nothing where there is one
    player."""
    groups: dict[str, list[Path]] = {}
    for path in paths:
        agent = AGENT.search(path.stem)
        team = path.parent.name if given.is_dir() and path.parent != given else ""
        groups.setdefault(agent[1] if agent else team, []).append(path)
    agents = all(name.isdigit() for name in groups)
    return dict(sorted(groups.items(), key=lambda x: int(x[0]))) if agents else groups


def _read_group(paths: Sequence[Path]) -> tuple[Reference, Weights]:
    """One player's weights, from one file or from a file for each network."""
    read: dict[str, Path] = {}
    weights: Weights = {}
    reference = None
    for path in paths:
        arrays = torch_files.read(path)
        own, prefix = recognised(arrays, f"checkpoint {str(path)!r}")
        if reference is not None and own is not reference:
            raise ConfigError(
                f"{str(read.popitem()[1])!r} is a checkpoint of {reference.name}, {str(path)!r} of "
                f"{own.name}: give files of one of them."
            )
        if prefix in read:
            raise ConfigError(
                f"{str(read[prefix])!r} and {str(path)!r} are checkpoints of the same network: "
                "name the one to read."
            )
        reference, read[prefix] = own, path
        weights |= {f"{prefix}{name}": array for name, array in arrays.items()}
    assert reference is not None
    return reference, weights


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
