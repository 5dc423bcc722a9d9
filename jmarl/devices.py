"""Where a run lies: its members and its worlds, shared out over devices.

Only places are named here. The train step itself knows of one device; given a state that lies on
several, XLA divides the work and adds the sums that means, moments and gradients need, so that all
of these are of the whole batch. Pure; `jit` is the caller's:

    mesh = make_mesh(jax.devices(), members=1)
    trainer = replace(trainer, shards=mesh.shape[DATA])
    state, everywhere = state_sharding(trainer, mesh), replicated(mesh)
    jax.jit(
        trainer.step,
        in_shardings=(state, hyper_sharding(hyper, mesh)),
        out_shardings=(state, everywhere),
        donate_argnums=0,
    )
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jmarl.choices import Shuffle
from jmarl.envs.base import Env
from jmarl.errors import ConfigError
from jmarl.objective import Hyper
from jmarl.population import Population
from jmarl.trainer import Trainer
from jmarl.types import State

MEMBER, DATA = "member", "data"


def make_mesh(devices: Sequence[Any], members: int = 1) -> Mesh:
    """Axes (`member`, `data`). Members first, for they have nothing to tell each other: as many
    devices as divide them evenly. The rest share the worlds of each member."""
    rows = math.gcd(members, len(devices))
    shape = (rows, len(devices) // rows)
    return jax.make_mesh(shape, (MEMBER, DATA), (AxisType.Auto,) * 2, devices=devices)


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole on every device, where each host can read it: of metrics and scores."""
    return NamedSharding(mesh, PartitionSpec())


def state_sharding(trainer: Trainer, mesh: Mesh, batched: bool = False) -> State:
    """Of every leaf of a state: the worlds' axis over `data`, the members' (`batched`, of a
    `Population`) over `member`, everything else whole."""
    few = trainer.shapes
    many = replace(trainer, num_envs=2 * trainer.num_envs).shapes
    lone = few
    if batched:
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
        lone = jax.eval_shape(Population(trainer).init, keys)
    return jax.tree.map(partial(_sharding, mesh), few, many, lone)


def hyper_sharding(hyper: Hyper, mesh: Mesh) -> Hyper:
    """Numbers `[M]` over `member`; those that all members share whole."""
    return jax.tree.map(
        lambda x: NamedSharding(mesh, PartitionSpec(*[MEMBER] * jax.numpy.ndim(x))), hyper
    )


def spread(env: Env, mesh: Mesh) -> Callable[[Any], Any]:
    """For `play_episodes`: the worlds that `env.reset` gives, shared out over `data`."""
    few, many = (jax.eval_shape(partial(env.reset, num_envs=n), jax.random.key(0)) for n in (1, 2))
    shardings = jax.tree.map(partial(_sharding, mesh), few, many, few)
    return lambda worlds: jax.lax.with_sharding_constraint(worlds, shardings)


def _sharding(mesh: Mesh, few: Any, many: Any, placed: Any) -> NamedSharding:
    """Of the leaf `placed`, which may have an axis of members before those of `few`. The axis of
    worlds is the one that grows with them: adapters lay it where they like."""
    members = (MEMBER,) * (placed.ndim - few.ndim)
    pairs = zip(few.shape, many.shape, strict=True)
    return NamedSharding(
        mesh, PartitionSpec(*members, *(DATA if a != b else None for a, b in pairs))
    )


def check_shards(
    num_envs: int, shards: int, num_minibatches: int = 1, shuffle: Shuffle = "blocks"
) -> None:
    """Refuse worlds that do not go evenly into shards, or those of a shard into minibatches."""
    if num_envs % shards:
        raise ConfigError(
            f"num_envs={num_envs} cannot be shared out evenly over {shards} devices: "
            f"choose a multiple of {shards}."
        )
    if shuffle != "rows" and num_envs % (shards * num_minibatches):
        raise ConfigError(
            f"num_envs={num_envs} on {shards} devices is {num_envs // shards} worlds each, which "
            f"ppo.num_minibatches={num_minibatches} does not divide: choose a multiple of "
            f"{shards * num_minibatches}, or ppo.shuffle='rows'."
        )
