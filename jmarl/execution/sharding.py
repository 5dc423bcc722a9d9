"""Shards a run over devices: its members and its worlds.

The train step is sharded by hand (`jax.shard_map`): every device steps its own members and worlds,
and communicates only in the all-reduces of `jmarl.learning.collectives`. XLA shards initialisation
and evaluation. The functions here are pure; the caller applies `jit`:

    mesh = make_mesh(jax.devices(), members=1)
    trainer = replace(trainer, layout=Layout(mesh.shape[DATA_AXIS]))
    at = places(trainer, hyper, mesh, batched=False)
    jax.jit(shard_step(trainer.step, at), donate_argnums=0)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jmarl.config.train_config import Config
from jmarl.envs.base import Env, EnvSpec
from jmarl.errors import ConfigError
from jmarl.execution.cpu_devices import FORCED, counted_by_user, worthwhile
from jmarl.execution.empty_arrays import drop_empty, insert_empty
from jmarl.execution.host_worlds import check_on_host
from jmarl.learning.collectives import world_axis
from jmarl.learning.ppo_loss import HyperParams
from jmarl.learning.trainer import Trainer
from jmarl.learning.vmapped import VmappedTrainer
from jmarl.types import DATA_AXIS, MEMBER_AXIS, Metrics, TrainState


def make_mesh(devices: Sequence[Any], members: int = 1) -> Mesh:
    """A mesh with axes (`member`, `data`). Members are split first, over as many devices as divide
    them evenly, because they do not communicate. The other axis splits each member's worlds."""
    rows = math.gcd(members, len(devices))
    shape = (rows, len(devices) // rows)
    return jax.make_mesh(shape, (MEMBER_AXIS, DATA_AXIS), (AxisType.Auto,) * 2, devices=devices)


def replicated(mesh: Mesh) -> NamedSharding:
    """Whole on every device, so that every host can read it: for metrics and scores."""
    return NamedSharding(mesh, PartitionSpec())


def state_sharding(trainer: Trainer, mesh: Mesh, batched: bool = False) -> TrainState:
    """The sharding of every leaf of a state: the axis of worlds over `data`, that of members (if
    `batched`) over `member`, everything else replicated."""
    few = trainer.shapes
    many = replace(trainer, num_envs=2 * trainer.num_envs).shapes
    placed = few
    if batched:
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
        placed = jax.eval_shape(VmappedTrainer(trainer).init, keys)
    return jax.tree.map(partial(_sharding, mesh), few, many, placed)


def hyper_sharding(hyper: HyperParams, mesh: Mesh) -> HyperParams:
    """Hyperparameters `[M]` over `member`; those that all members share are replicated."""
    return jax.tree.map(
        lambda x: NamedSharding(mesh, PartitionSpec(*[MEMBER_AXIS] * jax.numpy.ndim(x))), hyper
    )


class ProgramShardings(NamedTuple):
    """Shardings of the arguments and results of a run's programs."""

    state: TrainState
    hyper: HyperParams
    own: NamedSharding  # of values with one entry per member: keys, metrics
    everywhere: NamedSharding


def places(trainer: Trainer, hyper: HyperParams, mesh: Mesh, batched: bool) -> ProgramShardings:
    """The shardings of one run, or (`batched`) of vmapped members."""
    own = NamedSharding(mesh, PartitionSpec(MEMBER_AXIS)) if batched else replicated(mesh)
    state = state_sharding(trainer, mesh, batched)
    return ProgramShardings(state, hyper_sharding(hyper, mesh), own, replicated(mesh))


Step = Callable[[TrainState, HyperParams], tuple[TrainState, Metrics]]


def shard_step(step: Step, at: ProgramShardings) -> Step:
    """The step of a trainer or vmapped trainer, run by every device on its shard."""
    specs = jax.tree.map(lambda place: place.spec, at)

    def shared(state: TrainState, hyper: HyperParams) -> tuple[TrainState, Metrics]:
        def local(arrays: list[jax.Array], hyper: HyperParams) -> tuple[list[jax.Array], Metrics]:
            empty = jax.tree.map(_local_zeros, state, at.state)
            new, metrics = step(insert_empty(arrays, state, empty), hyper)
            return drop_empty(new, state), metrics

        kept = drop_empty(specs.state, state)
        mapped = jax.shard_map(
            local,
            mesh=at.everywhere.mesh,
            in_specs=(kept, specs.hyper),
            out_specs=(kept, specs.own),
            check_vma=False,
        )
        arrays, metrics = mapped(drop_empty(state, state), hyper)
        return insert_empty(arrays, state, state), metrics

    return shared


def data_sharded(trainer: Trainer, hyper: HyperParams, devices: Sequence[Any]) -> Step:
    """The step of one run whose worlds these devices share, for `jit` to shard the rest by."""
    mesh = make_mesh(devices)
    layout = replace(trainer.layout, shards=mesh.shape[DATA_AXIS])
    at = places(trainer, hyper, mesh, batched=False)
    return shard_step(replace(trainer, layout=layout).step_alike, at)


def member_devices(config: Config, members: int) -> list[Any]:
    """The devices of this process that share so many members, each of which one device trains."""
    found = jax.local_devices()
    return found[: min(members, config.devices or len(found))]


def _local_zeros(array: jax.Array, sharding: NamedSharding) -> jax.Array | None:
    """One device's shard of an empty array."""
    if array.size:
        return None
    return jnp.zeros(sharding.shard_shape(array.shape), array.dtype)


def chosen_devices(config: Config, members: int, members_per_batch: int) -> list[Any]:
    """The devices to use: `config.devices` of them, or the most that split the work evenly; on a
    CPU at most as many as are worthwhile. Every process contributes the same number. One program
    trains `members_per_batch` of the `members`."""
    found, requested = jax.devices(), config.devices
    if requested is not None and requested > len(found):
        raise ConfigError(
            f"devices={requested} is more than the {len(found)} that jax has created in this "
            f"process. On a CPU, XLA_FLAGS=--{FORCED}={requested} creates that many."
        )
    use_all = jax.default_backend() != "cpu" or jax.process_count() > 1 or counted_by_user()
    most = len(found) if use_all else min(len(found), worthwhile(config, members))
    for count in [requested] if requested else range(most, 0, -1):
        if count % jax.process_count():
            continue
        shards = count // math.gcd(members_per_batch, count)
        try:
            config.check_shards(shards)
        except ConfigError:
            if requested or count == jax.process_count():
                raise
            continue
        return _evenly(found, count)
    raise ConfigError(
        f"devices={requested} cannot be divided evenly among {jax.process_count()} processes."
    )


def devices_for(config: Config, spec: EnvSpec, members: int, members_per_batch: int) -> list[Any]:
    """The devices to use with these worlds: a single one, if Python steps them."""
    if not spec.on_host:
        return chosen_devices(config, members, members_per_batch)
    check_on_host(config, members)
    return jax.local_devices()[:1]


def _evenly(devices: list[Any], count: int) -> list[Any]:
    """The first `count / processes` devices of every process."""
    each = count // jax.process_count()
    by_process: dict[int, list[Any]] = {}
    for device in devices:
        by_process.setdefault(device.process_index, []).append(device)
    return [device for of_process in by_process.values() for device in of_process[:each]]


def spread(env: Env, mesh: Mesh) -> Callable[[Any], Any]:
    """For `play_episodes`: a function that shards the results of `env.reset` over `data`."""
    few, many = (jax.eval_shape(partial(env.reset, num_envs=n), jax.random.key(0)) for n in (1, 2))
    shardings = jax.tree.map(partial(_sharding, mesh), few, many, few)
    return lambda worlds: jax.lax.with_sharding_constraint(worlds, shardings)


def _sharding(mesh: Mesh, few: Any, many: Any, placed: Any) -> NamedSharding:
    """The sharding of the leaf `placed`, which may have an axis of members before those of `few`.
    The axis whose length differs between `few` and `many` is that of worlds."""
    members, worlds = (MEMBER_AXIS,) * (placed.ndim - few.ndim), world_axis(few, many)
    axes = (DATA_AXIS if axis == worlds else None for axis in range(few.ndim))
    return NamedSharding(mesh, PartitionSpec(*members, *axes))
