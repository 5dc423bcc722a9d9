"""Scores a trained policy: greedy and sampled, in native worlds or in mpe2."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from jmarl.algorithms.build import make_trainer
from jmarl.errors import ConfigError
from jmarl.evaluation.trained_policy import TrainedPolicy
from jmarl.execution.memory import check_worlds_fit
from jmarl.learning.episodes import Episodes, episode_figures, play_episodes
from jmarl.types import PolicyState

Played = Literal["native", "mpe2"]  # jmarl's own worlds, or Farama's
Play = Callable[[jax.Array, bool], Episodes]  # (key, greedy) → episodes


Figures = dict[str, dict[str, float]]  # of "greedy" and "sampled" play, by name


def score(
    policy: TrainedPolicy, world: Played, episodes: int, seed: int, env_options: Mapping[str, Any]
) -> Figures:
    """`env_options`: where the worlds differ from those of training."""
    if world == "native":
        check_worlds_fit(policy.env, episodes)
    policy = elsewhere(policy, env_options)
    play = (
        _mpe2_player(policy, episodes, seed) if world == "mpe2" else native_play(policy, episodes)
    )
    figures = {}
    for case, greedy in (("greedy", True), ("sampled", False)):
        seen = episode_figures(policy.spec, play(jax.random.key(seed), greedy), case)
        figures[case] = {name.removeprefix(f"{case}/"): value for name, value in seen.items()}
    return figures


def native_play(policy: TrainedPolicy, episodes: int) -> Play:
    """Native worlds; one program plays greedy and sampled."""

    @jax.jit
    def play(policies: tuple[PolicyState, ...], key: jax.Array, greedy: jax.Array) -> Episodes:
        return play_episodes(policy.env, policy.players, policies, key, episodes, greedy)

    return lambda key, greedy: play(policy.policies, key, jnp.asarray(greedy))


def _mpe2_player(policy: TrainedPolicy, episodes: int, seed: int) -> Play:
    from jmarl.evaluation.mpe2 import play_in_mpe2

    return lambda key, greedy: play_in_mpe2(policy, key, episodes, greedy, seed)


def elsewhere(policy: TrainedPolicy, env_options: Mapping[str, Any]) -> TrainedPolicy:
    """The same parameters in a world of other options, if they fit."""
    if not env_options:
        return policy
    chosen = {**policy.config.env_options, **env_options}
    config = policy.config.model_copy(update={"env_options": chosen})
    trainer, _ = make_trainer(config)
    ours, theirs = (
        jax.tree.map(jnp.shape, policies) for policies in (policy.policies, trainer.shapes.policies)
    )
    if ours != theirs:
        raise ConfigError(
            f"env_options={dict(env_options)!r} changes what agents see or do, so this policy does "
            "not fit that world."
        )
    return TrainedPolicy(config, trainer.env, trainer.players, policy.policies)
