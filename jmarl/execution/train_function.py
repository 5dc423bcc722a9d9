"""Training as one pure function of a random key, which the caller may `jit` and `vmap`.

`vmap` batches it by a rule of its own. The members of a batch are shared out over the devices. On
an accelerator those of one device train side by side. On a CPU they train one after the other,
because together they would not fit into a core's caches. In both cases worlds that end together
reset in one branch, which a plain `vmap` of `lax.cond` would compute at every step.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.sharding import AxisType, PartitionSpec

from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import Config
from jmarl.errors import ConfigError, check_known
from jmarl.execution.batch_size import members_at_once, rows_at_once
from jmarl.execution.cpu_devices import split_cpu
from jmarl.execution.host_worlds import check_on_host
from jmarl.execution.sharding import data_sharded, devices_for, member_devices
from jmarl.learning.base import Learner
from jmarl.learning.collectives import Layout
from jmarl.learning.vmapped import VmappedTrainer
from jmarl.types import MEMBER_AXIS, Metrics, TrainState, Tree, float_dtype

# Options that the function would ignore, and what to do instead.
NOT_PURE = {
    "seeds": "whose function takes one seed's key: leave it out, and use jax.vmap",
    "stop_at_return": "whose function trains to the end of its budget: use jmarl.train",
    "init_from": "whose function begins with random parameters: use jmarl.train",
    "run_dir": "whose function writes nothing: use jmarl.train",
    "resume": "whose function trains from the beginning: use jmarl.train",
}


class Result(NamedTuple):
    """What `train` returns."""

    state: TrainState
    metrics: Metrics  # arrays [updates]


class TrainFunction:
    """`train(key, hyper=None)` trains from the beginning to the end of the budget.

    `train(jax.random.key(s))` is the run of `python -m jmarl.train --seed s`. `hyper` has the
    traced hyperparameters: a mapping of those that differ from the configuration, `{"lr": 1e-3}`,
    or all of them, `train.hyper._replace(lr=1e-3)`. The function is pure: it prints nothing, and
    `jax.jit`, `jax.vmap` and vmaps of vmaps apply to it. Metrics that are not finite end nothing
    here."""

    def __init__(
        self, config: Config, learner: Callable[[Any], Learner[Any, Any]] | None = None
    ) -> None:
        self.config = config
        self.trainer, self.hyper = make_trainer(config)
        if learner is not None:
            own = tuple(map(learner, self.trainer.learners))
            self.trainer = replace(self.trainer, learners=own)
        self._one, self._many = custom_vmap(self._train_one), custom_vmap(self._train_many)
        self._one.def_vmap(self._batch_one)
        self._many.def_vmap(self._batch_many)

    def __call__(self, key: jax.Array, hyper: Any = None) -> Result:
        return Result(*self._one(key, self._complete(hyper)))

    def _complete(self, hyper: Any) -> Any:
        """All hyperparameters, as arrays."""
        if hyper is None or isinstance(hyper, Mapping):
            given = dict(hyper or {})
            check_known("traced hyperparameter", given, self.hyper._fields)
            hyper = self.hyper._replace(**given)
        return jax.tree.map(lambda x: jnp.asarray(x, float_dtype()), hyper)

    def _train_one(self, key: jax.Array, hyper: Any) -> tuple[TrainState, Metrics]:
        """Of a run alone, devices share the worlds, where that is worthwhile."""
        devices = devices_for(self.config, self.trainer.env.spec, members=1, members_per_batch=1)
        trainer = replace(self.trainer, layout=Layout(microbatch_rows=rows_at_once(len(devices))))
        step = trainer.step_alike
        if len(devices) > 1:
            step = data_sharded(trainer, hyper, devices)
        return self._scan(trainer.init(_init_key(key)), hyper, step)

    def _train_many(self, keys: jax.Array, hyper: Any) -> tuple[TrainState, Metrics]:
        """`keys` and the leaves of `hyper`: `[M, …]`."""
        count = len(keys)
        if count == 1:
            alone = self._train_one(*jax.tree.map(lambda x: x[0], (keys, hyper)))
            return jax.tree.map(lambda x: x[None], alone)
        if self.trainer.env.spec.on_host:
            check_on_host(self.config, count)
        devices = member_devices(self.config, count)
        train = partial(self._train_in_batches, rows_at_once(len(devices)))
        if len(devices) > 1:
            mesh = jax.make_mesh((len(devices),), (MEMBER_AXIS,), (AxisType.Auto,), devices=devices)
            own = PartitionSpec(MEMBER_AXIS)
            train = jax.shard_map(train, mesh=mesh, in_specs=own, out_specs=own, check_vma=False)
        filled = jnp.minimum(jnp.arange(-(-count // len(devices)) * len(devices)), count - 1)
        trained = train(*jax.tree.map(lambda x: x[filled], (keys, hyper)))
        return jax.tree.map(lambda x: x[:count], trained)

    def _train_in_batches(
        self, rows: int | None, keys: jax.Array, hyper: Any
    ) -> tuple[TrainState, Metrics]:
        """The members of one device, as many at once as is fast."""
        count = len(keys)
        size = members_at_once(count, self.config.num_envs)
        trainer = replace(self.trainer, layout=Layout(microbatch_rows=rows))
        given = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), (keys, hyper))
        trained = lax.map(
            lambda batch: self._train_together(VmappedTrainer(trainer), *batch), given
        )
        return jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), trained)

    def _train_together(
        self, vmapped: VmappedTrainer, keys: jax.Array, hyper: Any
    ) -> tuple[TrainState, Metrics]:
        if len(keys) > 1:
            states = vmapped.init(jax.vmap(_init_key)(keys))
            states, metrics = self._scan(states, hyper, vmapped.step_alike)
            metrics = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), metrics)
            return vmapped.with_member_axis(states, len(keys)), metrics
        (key,), one = keys, jax.tree.map(lambda x: x[0], hyper)
        state = vmapped.trainer.init(_init_key(key))
        trained = self._scan(state, one, vmapped.trainer.step_alike)
        return jax.tree.map(lambda x: x[None], trained)

    def _scan(self, state: TrainState, hyper: Any, step: Callable) -> tuple[TrainState, Metrics]:
        return lax.scan(
            lambda state, _: step(state, hyper), state, length=self.trainer.total_updates
        )

    def _batch_one(self, size: int, batched: Any, key: jax.Array, hyper: Any) -> tuple[Any, Any]:
        """The rule of `vmap` for one run: M runs."""
        return _all_batched(self._many(*_stacked(size, batched, (key, hyper))))

    def _batch_many(self, size: int, batched: Any, keys: jax.Array, hyper: Any) -> tuple[Any, Any]:
        """The rule of `vmap` for M runs: `size` · M runs."""
        stacked = _stacked(size, batched, (keys, hyper))
        members = stacked[0].shape[:2]
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), stacked)
        trained = self._many(*flat)
        return _all_batched(jax.tree.map(lambda x: x.reshape(*members, *x.shape[1:]), trained))


def make_train(
    config: Config, learner: Callable[[Any], Learner[Any, Any]] | None = None
) -> TrainFunction:
    """`learner` makes each player's learner of the one that the configuration describes. Unless
    jax has created its devices before, a CPU becomes one device per core."""
    for name, why in NOT_PURE.items():
        if (given := getattr(config, name)) != Config.model_fields[name].default:
            raise ConfigError(f"{name}={given} cannot go with make_train, {why}.")
    split_cpu(config.devices)
    return TrainFunction(config, learner)


def _init_key(key: jax.Array) -> jax.Array:
    """A run derives two keys from its seed's: the second one is for its evaluations."""
    return jax.random.split(key)[0]


def _stacked(size: int, batched: Iterable[Any], given: tuple[Any, ...]) -> tuple[Any, ...]:
    """What members share, once for each."""

    def each(has_axis: bool, x: jax.Array) -> jax.Array:
        return x if has_axis else jnp.broadcast_to(x, (size, *x.shape))

    return jax.tree.map(each, tuple(batched), given)


def _all_batched(tree: Tree) -> tuple[Tree, Any]:
    return tree, jax.tree.map(lambda _: True, tree)
