"""Warm start: training begins with the parameters and statistics of a run, or of a torch
checkpoint. The optimiser, the schedule and the budget start fresh."""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jmarl.config.train_config import Config, flat_values
from jmarl.envs.spaces import Box
from jmarl.errors import ConfigError
from jmarl.execution import multihost
from jmarl.execution.members import WarmStart
from jmarl.execution.named_leaves import named_arrays
from jmarl.learning.trainer import Trainer
from jmarl.literals import Which
from jmarl.policies.parts import selected
from jmarl.references.base import flat
from jmarl.runs import torch_checkpoints
from jmarl.runs.files import (
    CHECKPOINTS,
    INIT_FROM,
    VERSIONS,
    is_run,
    read_json,
    written_checkpoints,
)
from jmarl.runs.saved_parameters import saved_arrays, saved_config
from jmarl.types import TrainState

# Options that change what parameters of the same shapes compute.
MEANING = ("net.activation", "net.n_head", "ppo.normalise_obs")
CONTINUOUS = ("net.distribution", "net.squash_mean")  # likewise, where actions are continuous
SHOWN = 3  # differences in a message


class Source(NamedTuple):
    """What a run or a checkpoint has to give."""

    arrays: Mapping[str, np.ndarray]  # by their names in a run's state
    about: dict[str, Any]
    hint: str  # what may explain shapes that differ
    without_returns: str  # why there are no statistics of returns


def load_warm_start(config: Config, trainer: Trainer, path: Path | None = None) -> WarmStart | None:
    """What `init_from` gives; None without it, or if the run in `path` has a checkpoint to resume
    from. What does not fit is refused."""
    if config.init_from is None or (path and written_checkpoints(path / CHECKPOINTS)):
        return None

    def pack() -> bytes:
        found = _loaded(config, trainer)
        if path is not None:
            _check_same(found.about, path)
        return multihost.packed(found.about, dict(found.arrays))

    about, arrays = multihost.unpacked(multihost.broadcast_from_main(pack))
    return WarmStart(arrays, about)


def _loaded(config: Config, trainer: Trainer) -> WarmStart:
    assert config.init_from is not None
    path, which = source_path(config.init_from)
    shapes = trainer.shapes
    wanted = _wanted(config, trainer, shapes)
    if is_run(path) or not torch_checkpoints.is_checkpoint(path):
        source = _run(path, which, config, trainer)
    else:
        source = _torch(path, config, trainer, wanted)
    given = f"init_from={str(config.init_from)!r}"
    needed = {name: tuple(x.shape) for name, x in named_arrays(shapes).items()}
    _check_fit(source, needed, wanted, given, whole=config.init_parts == "all")
    names = {f"policies.{i}.params.{name}" for i, own in wanted.items() for name in own}
    names |= _statistics(source, trainer, wanted, needed)
    arrays = {name: np.asarray(source.arrays[name]) for name in sorted(names)}
    for note in _notes(source, config, trainer, wanted, arrays, given):
        warnings.warn(note, stacklevel=2)
    loaded = dict.fromkeys(re.sub(r"^(\w+\.\d+\.\w+).*", r"\1", name) for name in arrays)
    about = source.about | {"parts": config.init_parts, "loaded": list(loaded)}
    return WarmStart(arrays, about)


def source_path(given: Path) -> tuple[Path, Which]:
    """`RUN`, `RUN:best` or `RUN:latest`."""
    for which in ("best", "latest"):
        if str(given).endswith(f":{which}"):
            return Path(str(given).removesuffix(f":{which}")), which
    return given, "best"


def _run(path: Path, which: Which, config: Config, trainer: Trainer) -> Source:
    before = saved_config(path)
    continuous = isinstance(trainer.env.spec.action_space, Box)
    _check_meaning(before, config, (*MEANING, *CONTINUOUS) if continuous else MEANING, path)
    saved = saved_arrays(path, which)
    about = {"from": str(path.absolute()), "which": which, "update": saved.update}
    was, now = (dict(flat_values(each)) for each in (before, config))
    names = [n for n in was.keys() & now.keys() if n.startswith(("net.", "env", "actions"))]
    differ = sorted(name for name in names if was[name] != now[name])
    hint = "; ".join(f"{name} was {was[name]!r}, now {now[name]!r}" for name in differ[:SHOWN])
    return Source(
        arrays=saved.arrays,
        about=about | {"digest": saved.digest},
        hint=f" ({hint})" if hint else "",
        without_returns="which seeds store with their latest parameters, not with the best",
    )


def _torch(path: Path, config: Config, trainer: Trainer, wanted: Mapping[int, set[str]]) -> Source:
    checkpoint = torch_checkpoints.read_checkpoint(path)
    about = {
        "from": list(checkpoint.digests),
        "reference": checkpoint.reference.name,
        "digest": checkpoint.digests,
    }
    if config.init_parts == "all":
        torch_checkpoints.check_options(checkpoint, config)
        arrays = torch_checkpoints.state_arrays(checkpoint, trainer.players)
    else:
        arrays = torch_checkpoints.state_arrays(
            checkpoint, trainer.players, lambda player, name: name in wanted[player]
        )
    never = "which MAT, XuanCe and on-policy's shared runner never save"
    return Source(arrays, about, hint="", without_returns=never)


def _check_meaning(before: Config, config: Config, names: tuple[str, ...], path: Path) -> None:
    was, now = (dict(flat_values(each)) for each in (before, config))
    for name in names:
        if name in was and name in now and was[name] != now[name]:
            raise ConfigError(
                f"{name}={now[name]!r} makes another network of the parameters of {str(path)!r}, "
                f"which has {name}={was[name]!r}: choose the same."
            )


def _wanted(config: Config, trainer: Trainer, shapes: TrainState) -> dict[int, set[str]]:
    """The names of the parameters that every player begins with."""
    return {
        i: selected(player.policy, flat(shapes.policies[i].params), config.init_parts)
        for i, player in enumerate(trainer.players)
    }


def _check_fit(
    source: Source,
    needed: Mapping[str, tuple[int, ...]],
    wanted: Mapping[int, set[str]],
    given: str,
    whole: bool,
) -> None:
    """All parameters that are wanted must be there, in the right shapes; with the whole policy,
    there may be no others."""
    found = {name: tuple(np.shape(x)) for name, x in source.arrays.items()}
    players = {name.split(".")[1] for name in found if name.startswith("policies.")}
    if len(players) != len(wanted):
        raise ConfigError(
            f"{given} has networks for another number of players: {len(players)}, not "
            f"{len(wanted)}{source.hint}."
        )
    compared = {f"policies.{i}.params.{name}" for i, own in wanted.items() for name in own}
    compared |= {n for n in found if whole and re.match(r"policies\.\d+\.params\.", n)}
    if apart := sorted(name for name in compared if found.get(name) != needed.get(name)):
        differences = ", ".join(
            f"{name} is {found.get(name, 'absent')}, not {needed.get(name, 'there')}"
            for name in apart[:SHOWN]
        )
        raise ConfigError(f"{given} does not fit this run: {differences}{source.hint}.")


def _statistics(
    source: Source, trainer: Trainer, wanted: Mapping[int, set[str]], needed: Mapping[str, Any]
) -> set[str]:
    """The names of running statistics that source and run have in the same shapes: of observations;
    and with the values also of returns and rewards."""
    found: set[str] = set()
    for i, player in enumerate(trainer.players):
        kinds = [f"policies.{i}.obs_stats."]
        if _values(player.policy.value_head) in wanted[i]:
            kinds += [f"learners.{i}.value_norm.", f"learners.{i}.reward_scale.moments."]
        for kind in kinds:
            names = {name for name in needed if name.startswith(kind)}
            shapes = (np.shape(source.arrays.get(name, 0.0)) for name in names)
            known = names <= source.arrays.keys()
            if known and all(a == needed[n] for a, n in zip(shapes, names, strict=True)):
                found |= names
    return {name for name in found if not _without_updates(source, name)}


def _values(head: tuple[str, ...]) -> str:
    return ".".join((*head, "kernel"))


def _without_updates(source: Source, name: str) -> bool:
    """Whether these are statistics of returns that nothing has updated."""
    norm = re.match(r"(learners\.\d+\.value_norm\.)", name)
    return norm is not None and not source.arrays[f"{norm[1]}updates"]


def _notes(
    source: Source,
    config: Config,
    trainer: Trainer,
    wanted: Mapping[int, set[str]],
    arrays: Mapping[str, Any],
    given: str,
) -> list[str]:
    """What is missing that a reference never saves, or that a run has not learned."""
    notes = []
    for i, player in enumerate(trainer.players):
        valued = _values(player.policy.value_head) in wanted[i]
        normed, known = config.ppo.value_norm != "none", f"learners.{i}.value_norm.mean" in arrays
        if valued and normed and not known:
            notes.append(
                f"{given} has no statistics of returns, {source.without_returns}: "
                f"ppo.value_norm={config.ppo.value_norm!r} begins anew, and values are off until "
                "the first updates."
            )
        if valued and known and not normed:
            notes.append(
                f"{given} has values in units of running statistics, which ppo.value_norm='none' "
                "does not use: values are off until they are learned again."
            )
        if player.normalise_obs and f"policies.{i}.obs_stats.obs.mean" not in arrays:
            notes.append(
                f"{given} has no statistics of observations, which the PPO trainer never saves: "
                "what the policy reads is off until they are learned."
            )
    return list(dict.fromkeys(notes))


def _check_same(about: Mapping[str, Any], path: Path) -> None:
    """Refuse to begin a run again, whose source has changed since."""
    before = read_json(path / VERSIONS).get(INIT_FROM)
    if before is not None and before.get("digest") != about["digest"]:
        raise ConfigError(
            f"{str(path)!r} has no checkpoint yet, and what it began with, {about['from']}, has "
            "changed since. Start a new run."
        )
