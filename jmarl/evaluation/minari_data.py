"""Recorded episodes as data sets of Minari."""

import importlib.util
import warnings
from typing import Any

from jmarl.envs.base import EnvSpec
from jmarl.envs.by_agent import own_action, own_obs
from jmarl.errors import ConfigError, RunError
from jmarl.evaluation.episode_arrays import EpisodeArrays


def check_minari(name: str) -> None:
    """Refuse what Minari would, before anything is played."""
    if importlib.util.find_spec("minari") is None or importlib.util.find_spec("h5py") is None:
        raise ConfigError(
            f"minari={name!r} needs the 'minari' extra, which is not installed: "
            'pip install "jmarl[minari]".'
        )
    import minari  # pyright: ignore[reportMissingImports]

    try:
        minari.dataset.minari_dataset.parse_dataset_id(name)
    except ValueError as error:
        raise ConfigError(
            f"minari={name!r} is not a name of a data set, such as jmarl/spread/mappo-v0: {error}"
        ) from None
    try:
        known = minari.list_local_datasets()
    except OSError as error:
        raise ConfigError(f"minari={name!r} cannot be written: {error}.") from None
    if name in known:
        raise ConfigError(f"minari={name!r} exists already: choose another name or version.")


def check_one_reward(name: str, spec: EnvSpec) -> None:
    """Refuse worlds of several teams: Minari's steps have one reward."""
    if not spec.cooperative:
        teams = " and ".join(team.name for team in spec.teams)
        raise ConfigError(
            f"minari={name!r} needs one reward per step, but {teams} are opponents in "
            f"{spec.name}: record them as npz."
        )


def write_minari(name: str, spec: EnvSpec, played: EpisodeArrays, algorithm: str) -> None:
    """A data set of dictionaries by agent. Rewards are sums over agents; each agent's own are in
    `infos["reward"]`."""
    import gymnasium
    import minari  # pyright: ignore[reportMissingImports]

    from jmarl.views.gymnasium_spaces import action_space, vector_space

    episodes = range(len(played.length))
    views = gymnasium.spaces.Dict(
        list(zip(spec.agents, map(vector_space, spec.obs_sizes), strict=True))
    )
    acts = gymnasium.spaces.Dict(
        list(zip(spec.agents, map(action_space, spec.action_spaces), strict=True))
    )
    try:
        with warnings.catch_warnings(action="ignore"):  # of an author and other facts not given
            minari.create_dataset_from_buffers(
                name,
                buffer=[_episode(spec, played, e) for e in episodes],
                algorithm_name=algorithm,
                observation_space=views,
                action_space=acts,
                description=f"Episodes of {algorithm} in {spec.name}, played by jmarl.",
            )
    except (OSError, ValueError) as error:
        raise RunError(f"minari={name!r} cannot be written: {error}") from None


def _episode(spec: EnvSpec, played: EpisodeArrays, episode: int) -> Any:
    from minari.data_collector import EpisodeBuffer  # pyright: ignore[reportMissingImports]

    steps = int(played.length[episode])
    reward = played.reward[episode, :steps]
    return EpisodeBuffer(
        id=episode,
        observations=own_obs(spec, played.obs[episode, : steps + 1]),
        actions=own_action(spec, played.action[episode, :steps]),
        rewards=reward.sum(1).tolist(),
        terminations=played.terminated[episode, :steps].all(1).tolist(),
        truncations=played.truncated[episode, :steps].tolist(),
        infos={"reward": dict(zip(spec.agents, reward.T, strict=True))},
    )
