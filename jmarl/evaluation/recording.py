"""Plays episodes of a trained policy and writes what agents saw, did and earned."""

import io
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jmarl.envs.base import EnvSpec
from jmarl.errors import RunError
from jmarl.evaluation.episode_arrays import EpisodeArrays, record_episodes
from jmarl.evaluation.minari_data import write_minari
from jmarl.evaluation.trained_policy import TrainedPolicy
from jmarl.runs.files import replace_bytes


def record(
    policy: TrainedPolicy,
    episodes: int,
    path: Path,
    minari: str | None,
    seed: int = 1,
    greedy: bool = True,
) -> None:
    """`minari`: the name of a data set that the episodes also become."""
    spec = policy.spec
    played = record_episodes(policy, jax.random.key(seed), episodes, greedy)
    try:
        write_npz(path, spec, played)
    except OSError as error:
        raise RunError(f"record_path={str(path)!r} cannot be written: {error}.") from None
    if minari is not None:
        write_minari(minari, spec, played, policy.config.algorithm)


def write_npz(path: Path, spec: EnvSpec, played: EpisodeArrays) -> None:
    """The arrays of `EpisodeArrays` by name, and what is needed to read them without jmarl."""
    about: dict[str, Any] = {
        "agents": np.array(spec.agents),
        "obs_sizes": np.array(spec.obs_sizes),
        "action_sizes": np.array([space.size for space in spec.action_spaces]),
        "teams": np.array([_team_of(spec, i) for i in range(spec.num_agents)]),
        "world": np.array(spec.name),
    }
    content = io.BytesIO()
    np.savez_compressed(content, **about, **played._asdict())
    replace_bytes(path, content.getvalue())


def _team_of(spec: EnvSpec, agent: int) -> str:
    return next(team.name for team in spec.teams if agent in team.agents)
