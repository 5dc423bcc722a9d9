"""Refuses what does not fit into memory, from shapes alone: before anything is compiled."""

from typing import Any

import jax

from jmarl.algorithms.build import make_trainer
from jmarl.algorithms.check import check_parts
from jmarl.config.train_config import Config
from jmarl.envs.base import Env
from jmarl.errors import ConfigError, brief
from jmarl.execution.named_leaves import is_key
from jmarl.learning.ppo_loss import HyperParams
from jmarl.learning.trainer import Trainer
from jmarl.machine import available_memory, readable
from jmarl.plugins import LOADED, before_anything_is_done
from jmarl.registry import is_built_in

# An environment's counts that are this large are measured at this size first: it needs less memory
# than one with more agents, and a million of them take minutes to describe.
MANY = 10_000


def fitting_trainer(config: Config, members: int) -> tuple[Trainer, HyperParams]:
    """`make_trainer`, if so many members fit into memory, and what is of plug-ins fits together."""
    with before_anything_is_done():
        trainer, hyper = _trainer(config, members)
        if LOADED or not is_built_in(config.algorithm, config.env):
            check_parts(config, trainer, hyper)
    return trainer, hyper


def _trainer(config: Config, members: int) -> tuple[Trainer, HyperParams]:
    smaller = {
        name: min(value, MANY) if type(value) is int and name.startswith("num_") else value
        for name, value in config.env_options.items()
    }
    if smaller != config.env_options:
        trainer, _ = make_trainer(config.model_copy(update={"env_options": smaller}))
        check_fits(config, trainer, members)
    trainer, hyper = make_trainer(config)
    check_fits(config, trainer, members)
    return trainer, hyper


def check_fits(config: Config, trainer: Trainer, members: int) -> None:
    """Refuse what needs more memory than there is. Counted is what certainly exists at once: the
    states and best parameters of all members, and of one member the gradient, a rollout of what
    its agents see, and the worlds of an evaluation. Programs need more."""
    state = trainer.shapes
    parameters, learned = size(state.policies), size(state.learners)
    worlds = size((state.env, state.timestep, state.memory))
    seen = size((state.timestep.obs, state.timestep.reward)) * trainer.rollout_length
    evaluated = worlds * config.eval_episodes // config.num_envs
    networks = members * (2 * parameters + learned) + parameters
    batch = members * worlds + seen + evaluated
    free = free_memory()
    if networks + batch <= free:
        return
    raise ConfigError(
        f"this run would take at least {readable(networks + batch)} of memory, but only "
        f"{readable(free)} are free: {readable(networks)} for networks and optimisers, "
        f"{readable(batch)} for worlds and rollouts. "
        f"Choose less of {_causes(config, members, networks > batch)}."
    )


def check_worlds_fit(env: Env, count: int) -> None:
    """Refuse episodes whose worlds need more memory than there is."""
    one = size(jax.eval_shape(lambda: env.reset(jax.random.key(0), 1)))
    need, free = one * count, free_memory()
    if need > free:
        raise ConfigError(
            f"episodes={count} would take at least {readable(need)} of memory, but only "
            f"{readable(free)} are free: choose fewer."
        )


def _causes(config: Config, members: int, networks: bool) -> str:
    """The options that make it large."""
    width = f"net.n_embd={config.net.n_embd}"
    if not config.transformer:
        width = f"net.hidden={brief(config.net.hidden)}"
    batch = [f"{k}={getattr(config, k)}" for k in ("num_envs", "rollout_length", "eval_episodes")]
    causes = [width] if networks else batch
    counts = [f"{name}={value}" for name, value in config.env_options.items() if name[:4] == "num_"]
    return ", ".join([*causes, *counts, *_members(config, members)])


def _members(config: Config, count: int) -> list[str]:
    if count == 1:
        return []
    return [f"seeds={count}"] if count == config.seeds else [f"{count} members"]


def free_memory() -> float:
    """Of all devices, where they have memory of their own; else the machine's."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    if not all("bytes_limit" in one for one in stats):
        return available_memory()
    own = sum(one["bytes_limit"] - one.get("bytes_in_use", 0) for one in stats)
    return own * jax.process_count()


def size(shapes: Any) -> int:
    """Bytes of arrays."""
    return sum(leaf.size * _item(leaf) for leaf in jax.tree.leaves(shapes))


def _item(leaf: Any) -> int:
    """Bytes of one entry; random keys are two numbers."""
    return 8 if is_key(leaf) else leaf.dtype.itemsize
