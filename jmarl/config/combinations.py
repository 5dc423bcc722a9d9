"""Combinations of a run's options that no single field can refuse."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jmarl.config.declaration import Section
from jmarl.errors import ConfigError, brief
from jmarl.machine import available_memory, readable

if TYPE_CHECKING:
    from jmarl.config.train_config import Config

LARGEST_SEED = 2**32 - 1
LARGEST_INT = 2**53  # beyond, floats cannot count
BYTES_PER_STEP = 32  # at least: of an agent's reward, values, return, advantage, log-prob, actions


def check_start(config: "Config") -> None:
    if config.init_parts != "all" and config.init_from is None:
        raise ConfigError(
            f"init_parts={config.init_parts!r} needs init_from: the run or the checkpoint that "
            "gives them."
        )


def check_networks(config: "Config") -> None:
    if config.net.n_embd % config.net.n_head:
        raise ConfigError(
            f"net.n_head={config.net.n_head} does not divide net.n_embd={config.net.n_embd}."
        )
    if config.net.share == "none" and config.net.agent_id != "none":
        raise ConfigError(
            f"net.agent_id={config.net.agent_id!r} cannot go with net.share='none': an agent "
            "with networks of its own needs no id; choose 'none'."
        )
    if config.net.squash_mean and config.net.distribution in ("tanh", "beta"):
        raise ConfigError(
            f"net.squash_mean=True cannot go with net.distribution="
            f"{config.net.distribution!r}, which keeps within the bounds by itself: choose "
            "'gaussian'."
        )
    if config.transformer and config.net.share == "none":
        raise ConfigError(
            f"net.share='none' cannot go with algorithm={config.algorithm!r}, which is one "
            "network for a team: choose 'team' or 'all'."
        )


def check_batches(config: "Config") -> None:
    ppo = config.ppo
    if config.rollout_length % (ppo.chunk_length or 1):
        raise ConfigError(
            f"ppo.chunk_length={ppo.chunk_length} does not divide "
            f"rollout_length={config.rollout_length}."
        )
    if ppo.advantage_entries == "all" and ppo.advantage_norm != "minibatch":
        raise ConfigError(
            f"ppo.advantage_entries='all' cannot go with ppo.advantage_norm="
            f"{ppo.advantage_norm!r}: choose 'minibatch'."
        )
    if config.recurrent and ppo.shuffle == "rows":
        raise ConfigError(
            f"ppo.shuffle='rows' would tear sequences apart; {config.algorithm} needs 'blocks'."
        )
    units, of = config.minibatch_units
    if units % config.num_minibatches:
        raise ConfigError(
            f"ppo.num_minibatches={ppo.num_minibatches} does not divide {of} = {units}."
        )
    if config.num_updates < 1:
        raise ConfigError(
            f"total_steps={config.total_steps} is less than one update of num_envs × "
            f"rollout_length = {config.steps_per_update} steps{_memory_of_an_update(config)}."
        )


def _memory_of_an_update(config: "Config") -> str:
    """What makes a larger budget no remedy, or nothing."""
    least, free = config.steps_per_update * BYTES_PER_STEP, available_memory()
    if least <= free:
        return ""
    return (
        f", which would take at least {readable(least)} of memory, but only {readable(free)} "
        f"are free: choose less of num_envs={config.num_envs}, "
        f"rollout_length={config.rollout_length}"
    )


def check_numbers(config: "Config") -> None:
    """Refuse whole numbers that nothing counts to, and seeds that are none."""
    for name, value in _whole_numbers(config):
        if abs(value) > LARGEST_INT:
            raise ConfigError(f"{name}={brief(value)} is not between ±{LARGEST_INT}.")
    check_seeds(config.seed, config.seeds)


def check_seeds(first: int, count: int) -> None:
    """Refuse seeds beyond those that random keys are made of."""
    if first + count - 1 > LARGEST_SEED:
        raise ConfigError(
            f"seed={first} with seeds={count} goes up to seed {brief(first + count - 1)}; the "
            f"largest is {LARGEST_SEED}."
        )


def _whole_numbers(values: Any) -> Iterator[tuple[str, int]]:
    """Of sections and mappings, by full name."""
    for name, value in dict(values).items():
        if isinstance(value, Section | Mapping):
            yield from ((f"{name}.{inner}", number) for inner, number in _whole_numbers(value))
        parts = value if isinstance(value, tuple) else (value,)
        yield from ((name, part) for part in parts if isinstance(part, int))
