"""A population in training: batches of members, all of one compiled shape. A single run is a
population of one, in a batch without member axis."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jmarl.config.combinations import check_seeds
from jmarl.config.train_config import Config
from jmarl.envs.base import EnvSpec
from jmarl.errors import ConfigError
from jmarl.execution import multihost
from jmarl.execution.batch_size import fitting, free_bytes, members_per_batch, rows_at_once
from jmarl.execution.compilation import Programs, compile_programs
from jmarl.execution.cpu_devices import cores
from jmarl.execution.members import NO_SCORE, Best, Members, Policies, Snapshot, WarmStart
from jmarl.execution.memory import fitting_trainer
from jmarl.execution.named_leaves import with_arrays
from jmarl.execution.sharding import DATA_AXIS, devices_for, make_mesh
from jmarl.learning.collectives import Layout
from jmarl.learning.episodes import Episodes
from jmarl.learning.ppo_loss import HyperParams
from jmarl.learning.recovery import begin_episodes
from jmarl.learning.trainer import Trainer
from jmarl.learning.vmapped import VmappedTrainer
from jmarl.types import TrainState

Result = TypeVar("Result")
AGAIN = 2**31 - 1  # folded into a resumed run's key; training folds in small numbers only


class Population:
    """Compiled programs, and the states of the members in training."""

    def __init__(
        self,
        trainer: Trainer,
        members: Members,
        episodes: int,
        per_batch: int = 1,
        limit: int | None = None,
        devices: Sequence[Any] = (),
        alone: bool = False,
        configured: bool = False,
    ) -> None:
        """At most `per_batch` members train in one program, fewer if its step would need more than
        `limit` bytes. With several `devices`, members and their worlds are sharded over them.
        `alone`: the only member is a run by itself, not one of a group. `configured`: members have
        the configuration's hyperparameters, also where they resume."""
        self.devices, self.alone, self.configured = devices, alone, configured
        self.mesh: Mesh | None = None
        self.trainer, self.vmapped = trainer, VmappedTrainer(trainer)
        self.seeds, self.hyper = members.seeds, members.hyper
        self.episodes, self.per_batch, self.limit = episodes, per_batch, limit
        self.active = np.arange(len(members.seeds))
        self.batches: list[TrainState] = []
        self.best: Best | None = None
        self.warm_start: WarmStart | None = None  # what all members begin with
        self.programs: Programs

    def compile(self) -> None:
        """Compiles the programs, again with smaller batches if memory does not suffice."""
        tried = None
        while tried != self.per_batch:
            tried = self.per_batch
            hyper = self._hyper(self.active[:tried])
            trainer, self.mesh = self.shard_trainer(tried)
            self.programs = compile_programs(trainer, hyper, self.episodes, tried, self.mesh)
            if self.limit is not None:
                needed = self.programs.step_bytes
                self.per_batch = fitting(len(self.seeds), tried, needed, self.limit)

    def shard_trainer(self, members: int) -> tuple[Trainer, Mesh | None]:
        """The trainer for batches of so many members on these devices, and their mesh."""
        layout = Layout(microbatch_rows=rows_at_once(len(self.devices)))
        trainer = replace(self.trainer, layout=layout)
        if len(self.devices) < 2:
            return trainer, None
        mesh = make_mesh(self.devices, members)
        return replace(trainer, layout=replace(layout, shards=mesh.shape[DATA_AXIS])), mesh

    def init(self) -> None:
        """Waits: nothing else may be queued when training begins (`jmarl.execution.in_flight`)."""
        self.batches = jax.block_until_ready([self._init(ids) for ids in self._slots()])

    def _init(self, ids: np.ndarray) -> TrainState:
        state = self.programs.init(self._placed("own", self._keys(ids)[0]))
        if self.warm_start is None:
            return state
        return self._placed("state", with_arrays(state, self.warm_start.arrays))

    def restore(self, states: TrainState, active: np.ndarray, best: Best | None) -> None:
        """`states` `[A, …]` are of the members in `active`."""
        self.active, self.best = np.asarray(active), best
        self._split(states)
        if self.trainer.env.spec.on_host:  # no checkpoint holds such worlds
            begin = jax.jit(partial(begin_episodes, self.trainer.env))
            self.batches = [
                begin(state, jax.random.fold_in(state.key, AGAIN)) for state in self.batches
            ]
        jax.block_until_ready(self.batches)

    def advance(
        self, updates: int, heartbeat: Callable[[], None] = lambda: None
    ) -> list[list[dict[str, jax.Array]]]:
        """Trains every batch. Returns metrics by batch and update; with a single batch it does not
        wait for the last few updates. Calls `heartbeat` with every update."""
        slots = self._slots()

        def train(i: int) -> list[dict[str, jax.Array]]:
            state, metrics = self.batches[i], []
            hyper = self._placed("hyper", self._hyper(slots[i]))
            for _ in range(updates):
                state, seen = self.programs.step(state, hyper)
                metrics.append(seen)
                heartbeat()
            self.batches[i] = state
            return metrics if len(slots) == 1 else jax.block_until_ready(metrics)

        return self._for_each_batch(train)

    def _for_each_batch(self, work: Callable[[int], Result]) -> list[Result]:
        """One after the other; on a CPU several at once, because the step of one small batch leaves
        cores idle most of the time."""
        count = len(self._slots())
        threads = min(count, cores()) if self._on_one_cpu() else 1
        if threads == 1:
            return [work(i) for i in range(count)]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, range(count)))

    def _on_one_cpu(self) -> bool:
        return jax.default_backend() == "cpu" and self.mesh is None

    def read(self, metrics: list[list[dict[str, jax.Array]]]) -> dict[str, np.ndarray]:
        """Metrics as `[updates, A]`; waits for them."""
        there = jax.device_get(metrics)
        return {
            name: np.stack([self._in_order([b[u][name] for b in there]) for u in range(len(first))])
            for first in (there[0],)
            for name in first[0]
        }

    def parameters(self) -> list[Policies]:
        """The members' policies by batch. The next step donates their buffers."""
        return [state.policies for state in self.batches]

    def play(self, parameters: list[Policies], greedy: bool, fold: int | None = None) -> Episodes:
        """Episodes `[A, episodes, …]`, from the same initial states every time; from others for
        each `fold`."""
        flag, slots = self._placed("everywhere", jnp.asarray(greedy)), self._slots()

        def score(i: int) -> Episodes:
            keys = self._keys(slots[i])[1]
            if fold is not None:
                again = partial(jax.random.fold_in, data=fold)
                keys = again(keys) if self.per_batch == 1 else jax.vmap(again)(keys)
            keys = self._placed("own", keys)
            return jax.device_get(self.programs.score(parameters[i], keys, flag))

        return jax.tree.map(lambda *x: self._in_order(x), *self._for_each_batch(score))

    def keep_best(self, scores: np.ndarray, update: int, parameters: list[Policies]) -> None:
        """Keeps every member's policies with the highest score so far; `scores` `[A]`."""
        if self.best is None:
            count = len(self.seeds)
            all_of = [self._grown(given) for given in parameters]
            stacked = jax.tree.map(lambda *x: jnp.copy(jnp.concatenate(x)[:count]), *all_of)
            self.best = Best(np.full(count, NO_SCORE), np.zeros(count, int), stacked)
        best, now = self.best, np.full(len(self.seeds), NO_SCORE)
        now[self.active] = scores
        better = now > best.score
        for given, ids in zip(parameters, self._slots(), strict=True):
            if better[ids].any():
                grown = self._grown(given)
                best.parameters = _kept(best.parameters, grown, ids, better[ids])
        best.score = np.where(better, now, best.score)
        best.update = np.where(better, update, best.update)

    def best_parameters(self) -> list[Policies]:
        """The best policies of the members in training, by batch."""
        assert self.best is not None
        index = [ids[0] if self.per_batch == 1 else ids for ids in self._slots()]
        whole = self.best.parameters
        chosen = [jax.tree.map(lambda x, ids=ids: x[ids], whole) for ids in index]
        if self.programs.places is None:
            return chosen
        return multihost.put(chosen, [self.programs.places.state.policies] * len(chosen))

    def keep(self, members: Sequence[int] | np.ndarray) -> None:
        """Only these members go on, packed into as few batches as possible."""
        places = np.searchsorted(self.active, np.sort(members))
        states = self.vmapped.take(self.states(), places)
        self.active = np.sort(np.asarray(members))
        self._split(states)

    def copy(self, source: np.ndarray) -> None:
        """Every member in training goes on with what member `source[i]` has learned, in its own
        worlds and with its own random streams; both count members in training."""
        self._split(self.vmapped.exploit(self.states(), source))

    def states(self) -> TrainState:
        """States `[A, …]`, in the order of `active`."""
        if self.per_batch == 1:
            return self.vmapped.stack(self.batches)
        joined = self.vmapped.join(self.batches)
        return self.vmapped.take(joined, np.arange(len(self.active)))

    def snapshot(self) -> tuple[Snapshot, dict[str, Any]]:
        """Everything that a resume needs, as arrays of this process. All processes must call it."""
        if self.best is None:
            self.keep_best(np.full(len(self.active), -np.inf), 0, self.parameters())
        best = self.best
        assert best is not None
        states = self.batches[0] if self.alone else self.states()
        hyper = jax.tree.map(lambda x: jnp.asarray(x, float), self.hyper)
        states, parameters = multihost.gather_to_host((states, best.parameters), self.mesh)
        about = {
            "alive": self.active.tolist(),
            "best_score": best.score.tolist(),
            "best_update": best.update.tolist(),
        }
        return Snapshot(states, parameters, hyper), about

    def _split(self, states: TrainState) -> None:
        places = [np.searchsorted(self.active, ids) for ids in self._slots()]
        index = [at[0] if self.per_batch == 1 else at for at in places]
        taken = (self.vmapped.take(states, at) for at in index)
        self.batches = [self._placed("state", state) for state in taken]

    def _placed(self, what: str, tree: Any) -> Any:
        """Puts a tree on the devices where the programs expect it."""
        places = self.programs.places
        return tree if places is None else multihost.put(tree, getattr(places, what))

    def _slots(self) -> list[np.ndarray]:
        """The members of each batch; the last batch repeats its last member."""
        size, count = self.per_batch, len(self.active)
        filled = np.minimum(np.arange(-(-count // size) * size), count - 1)
        return list(self.active[filled].reshape(-1, size))

    def _in_order(self, parts: Sequence[Any]) -> np.ndarray:
        """Results of all batches as `[A, …]`."""
        if self.per_batch == 1:
            return np.stack(parts)
        return np.concatenate(parts)[: len(self.active)]

    def _grown(self, given: Policies) -> Policies:
        return jax.tree.map(lambda x: x[None], given) if self.per_batch == 1 else given

    def _hyper(self, ids: np.ndarray) -> HyperParams:
        if self.per_batch == 1:
            return jax.tree.map(lambda x: float(x[ids[0]]), self.hyper)
        return jax.tree.map(lambda x: x[ids].astype(np.float32), self.hyper)

    def _keys(self, ids: np.ndarray) -> tuple[jax.Array, jax.Array]:
        """Keys for training and for evaluation."""
        pairs = [jax.random.split(jax.random.key(self.seeds[i])) for i in ids]
        init, play = (jnp.stack([pair[which] for pair in pairs]) for which in (0, 1))
        return (init[0], play[0]) if self.per_batch == 1 else (init, play)


@jax.jit
def _kept(best: Policies, given: Policies, ids: jax.Array, better: jax.Array) -> Policies:
    def choose(old: jax.Array, new: jax.Array) -> jax.Array:
        flags = better.reshape(-1, *(1,) * (new.ndim - 1))
        return old.at[ids].set(jnp.where(flags, new, old[ids]))

    return jax.tree.map(choose, best, given)


def make_population(config: Config, members: Members | None = None) -> Population:
    """`members`: the configuration's seeds, unless others are given. What cannot fit is refused."""
    count = config.seeds if members is None else len(members.seeds)
    trainer, hyper = fitting_trainer(config, count)
    _check_target(config, trainer.env.spec)
    configured = members is None
    alone = configured and config.seeds == 1
    if members is not None:
        check_seeds(max(members.seeds), 1)
    else:
        members = Members.alike(range(config.seed, config.seed + config.seeds), hyper)
    asked = config.members_per_batch
    size = min(count, asked) if asked else members_per_batch(count, config.num_envs)
    devices = devices_for(config, trainer.env.spec, count, size)
    limit = None if asked else free_bytes()
    given = (trainer, members, config.eval_episodes, size, limit, devices, alone)
    return Population(*given, configured=configured)


def _check_target(config: Config, spec: EnvSpec) -> None:
    if config.stop_at_return is not None and not spec.cooperative:
        raise ConfigError(
            f"stop_at_return={config.stop_at_return:g} needs one return of all agents; in "
            f"{spec.name} teams play against each other, and each has its own."
        )
