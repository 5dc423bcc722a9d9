"""Where a run lies: its members and its worlds, shared out over devices.

Training is divided by hand: every device steps its own members and worlds, and they meet only for
the sums of `jmarl.learning.collectives`. What begins and scores a run is divided by XLA. Pure;
`jit` is the caller's:

    mesh = make_mesh(jax.devices(), members=1)
    trainer = replace(trainer, shards=mesh.shape[DATA])
    at = places(trainer, hyper, mesh, batched=False)
    jax.jit(shared_out(trainer.step, at), donate_argnums=0)
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
from jmarl.envs.base import Env
from jmarl.errors import ConfigError
from jmarl.execution.cpu_devices import FORCED, counted_by_user, worthwhile
from jmarl.execution.empty_arrays import drop_empty, insert_empty
from jmarl.learning.collectives import world_axis
from jmarl.learning.ppo_loss import Hyper
from jmarl.learning.trainer import Trainer
from jmarl.learning.vmapped import Population
from jmarl.types import DATA, MEMBER, Metrics, State


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


class Places(NamedTuple):
    """Where the arguments and results of a run's programs lie."""

    state: State
    hyper: Hyper
    own: NamedSharding  # of what every member has one of: keys, metrics
    everywhere: NamedSharding


def places(trainer: Trainer, hyper: Hyper, mesh: Mesh, batched: bool) -> Places:
    """Of one run, or (`batched`) of members side by side."""
    own = NamedSharding(mesh, PartitionSpec(MEMBER)) if batched else replicated(mesh)
    state = state_sharding(trainer, mesh, batched)
    return Places(state, hyper_sharding(hyper, mesh), own, replicated(mesh))


Step = Callable[[State, Hyper], tuple[State, Metrics]]


def shared_out(step: Step, at: Places) -> Step:
    """A trainer's or population's step, taken by every device for what lies there."""
    specs = jax.tree.map(lambda place: place.spec, at)

    def shared(state: State, hyper: Hyper) -> tuple[State, Metrics]:
        def local(arrays: list[jax.Array], hyper: Hyper) -> tuple[list[jax.Array], Metrics]:
            own = jax.tree.map(_local_zeros, state, at.state)
            new, metrics = step(insert_empty(arrays, state, own), hyper)
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


def _local_zeros(array: jax.Array, sharding: NamedSharding) -> jax.Array | None:
    """One device's part of an empty array."""
    if array.size:
        return None
    return jnp.zeros(sharding.shard_shape(array.shape), array.dtype)


def chosen_devices(config: Config, members: int, side_by_side: int) -> list[Any]:
    """As many as asked for, or as share the work evenly: of a CPU as many as are worthwhile, else
    all, if they can. `side_by_side` of the `members` train in one program. Every process takes
    part with the same number."""
    there, asked = jax.devices(), config.devices
    if asked is not None and asked > len(there):
        raise ConfigError(
            f"devices={asked} is more than the {len(there)} that jax has made in this process. On "
            f"a CPU, XLA_FLAGS=--{FORCED}={asked} makes it so many."
        )
    own = jax.default_backend() != "cpu" or jax.process_count() > 1 or counted_by_user()
    most = len(there) if own else min(len(there), worthwhile(config, members))
    for count in [asked] if asked else range(most, 0, -1):
        if count % jax.process_count():
            continue
        shards = count // math.gcd(side_by_side, count)
        try:
            config.check_shards(shards)
        except ConfigError:
            if asked or count == jax.process_count():
                raise
            continue
        return _evenly(there, count)
    raise ConfigError(
        f"devices={asked} cannot be shared out evenly over {jax.process_count()} processes."
    )


def _evenly(there: list[Any], count: int) -> list[Any]:
    """The first few of every process."""
    each = count // jax.process_count()
    by_process: dict[int, list[Any]] = {}
    for device in there:
        by_process.setdefault(device.process_index, []).append(device)
    return [device for own in by_process.values() for device in own[:each]]


def spread(env: Env, mesh: Mesh) -> Callable[[Any], Any]:
    """For `play_episodes`: the worlds that `env.reset` gives, shared out over `data`."""
    few, many = (jax.eval_shape(partial(env.reset, num_envs=n), jax.random.key(0)) for n in (1, 2))
    shardings = jax.tree.map(partial(_sharding, mesh), few, many, few)
    return lambda worlds: jax.lax.with_sharding_constraint(worlds, shardings)


def _sharding(mesh: Mesh, few: Any, many: Any, placed: Any) -> NamedSharding:
    """Of the leaf `placed`, which may have an axis of members before those of `few`."""
    members, worlds = (MEMBER,) * (placed.ndim - few.ndim), world_axis(few, many)
    axes = (DATA if axis == worlds else None for axis in range(few.ndim))
    return NamedSharding(mesh, PartitionSpec(*members, *axes))
