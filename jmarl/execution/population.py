"""Members in training: batches of one compiled shape, taken in turn. A single run is a crew of
one, in a batch that has no member axis."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import Config
from jmarl.execution import multihost
from jmarl.execution.batch_size import fitting, free_bytes, rows_at_once, side_by_side
from jmarl.execution.compilation import Programs, compile_programs
from jmarl.execution.cpu_devices import cores
from jmarl.execution.members import NO_SCORE, Best, Members, Parameters, Snapshot
from jmarl.execution.sharding import DATA, chosen_devices, make_mesh
from jmarl.learning.episodes import Episodes
from jmarl.learning.ppo_loss import Hyper
from jmarl.learning.trainer import Trainer
from jmarl.learning.vmapped import Population
from jmarl.types import State

Result = TypeVar("Result")


class Crew:
    """Programs, and the states that they work on."""

    def __init__(
        self,
        trainer: Trainer,
        members: Members,
        episodes: int,
        per_batch: int = 1,
        limit: int | None = None,
        devices: Sequence[Any] = (),
        alone: bool = False,
    ) -> None:
        """At most `per_batch` train side by side, fewer if their step would need more than `limit`
        bytes. They and their worlds are shared out over `devices`, if these are several.
        `alone`: the only member is a run of its own, not one of a group."""
        self.devices, self.alone = devices, alone
        self.mesh: Mesh | None = None
        self.trainer, self.population = trainer, Population(trainer)
        self.seeds, self.hyper = members.seeds, members.hyper
        self.episodes, self.per_batch, self.limit = episodes, per_batch, limit
        self.alive = np.arange(len(members.seeds))
        self.batches: list[State] = []
        self.best: Best | None = None
        self.programs: Programs

    def compile(self) -> None:
        """Once; again with fewer members in a batch where memory would not do."""
        tried = None
        while tried != self.per_batch:
            tried = self.per_batch
            hyper = self._hyper(self.alive[:tried])
            trainer, self.mesh = self.shared_out(tried)
            self.programs = compile_programs(trainer, hyper, self.episodes, tried, self.mesh)
            if self.limit is not None:
                needed = self.programs.step_bytes
                self.per_batch = fitting(len(self.seeds), tried, needed, self.limit)

    def shared_out(self, members: int) -> tuple[Trainer, Mesh | None]:
        """The trainer as so many members side by side are trained here, and on what."""
        trainer = replace(self.trainer, piece_rows=rows_at_once(len(self.devices)))
        if len(self.devices) < 2:
            return trainer, None
        mesh = make_mesh(self.devices, members)
        return replace(trainer, shards=mesh.shape[DATA]), mesh

    def begin(self) -> None:
        """Waits: nothing else may be queued when training begins (`jmarl.execution.in_flight`)."""
        self.batches = jax.block_until_ready([self._init(ids) for ids in self._slots()])

    def _init(self, ids: np.ndarray) -> State:
        return self.programs.init(self._placed("own", self._keys(ids)[0]))

    def take_up(self, states: State, alive: np.ndarray, best: Best | None) -> None:
        """`states` `[A, …]` are those of the members in `alive`."""
        self.alive, self.best = np.asarray(alive), best
        self._split(states)
        jax.block_until_ready(self.batches)

    def advance(
        self, updates: int, alive: Callable[[], None] = lambda: None
    ) -> list[list[dict[str, jax.Array]]]:
        """Trains every batch. Metrics by batch and update; of a single batch the last few updates
        are not waited for. `alive` is called with every update."""
        slots = self._slots()

        def train(i: int) -> list[dict[str, jax.Array]]:
            state, metrics = self.batches[i], []
            hyper = self._placed("hyper", self._hyper(slots[i]))
            for _ in range(updates):
                state, seen = self.programs.step(state, hyper)
                metrics.append(seen)
                alive()
            self.batches[i] = state
            return metrics if len(slots) == 1 else jax.block_until_ready(metrics)

        return self._for_each_batch(train)

    def _for_each_batch(self, work: Callable[[int], Result]) -> list[Result]:
        """One after the other; on a CPU a few at once, for the step of one batch leaves cores idle
        most of the time."""
        count = len(self._slots())
        threads = min(count, cores()) if self._on_one_cpu() else 1
        if threads == 1:
            return [work(i) for i in range(count)]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, range(count)))

    def _on_one_cpu(self) -> bool:
        return jax.default_backend() == "cpu" and self.mesh is None

    def read(self, told: list[list[dict[str, jax.Array]]]) -> dict[str, np.ndarray]:
        """Metrics as `[updates, A]`, when they are there."""
        there = jax.device_get(told)
        return {
            name: np.stack([self._in_order([b[u][name] for b in there]) for u in range(len(first))])
            for first in (there[0],)
            for name in first[0]
        }

    def parameters(self) -> list[Parameters]:
        """By batch; a step takes their memory."""
        return [Parameters(state.params, state.normalisers) for state in self.batches]

    def play(self, parameters: list[Parameters], greedy: bool, fold: int | None = None) -> Episodes:
        """`[A, episodes, …]`, from the same initial states every time; others for each `fold`."""
        flag, slots = self._placed("everywhere", jnp.asarray(greedy)), self._slots()

        def score(i: int) -> Episodes:
            keys = self._keys(slots[i])[1]
            if fold is not None:
                again = partial(jax.random.fold_in, data=fold)
                keys = again(keys) if self.per_batch == 1 else jax.vmap(again)(keys)
            given = parameters[i]
            keys = self._placed("own", keys)
            return jax.device_get(self.programs.score(given.params, given.norms, keys, flag))

        return jax.tree.map(lambda *x: self._in_order(x), *self._for_each_batch(score))

    def keep_best(self, scores: np.ndarray, update: int, parameters: list[Parameters]) -> None:
        """Of each member the parameters with the highest score; `scores` `[A]`."""
        if self.best is None:
            count = len(self.seeds)
            all_of = [self._grown(given) for given in parameters]
            stacked = jax.tree.map(lambda *x: jnp.copy(jnp.concatenate(x)[:count]), *all_of)
            self.best = Best(np.full(count, NO_SCORE), np.zeros(count, int), stacked)
        best, now = self.best, np.full(len(self.seeds), NO_SCORE)
        now[self.alive] = scores
        better = now > best.score
        for given, ids in zip(parameters, self._slots(), strict=True):
            if better[ids].any():
                grown = self._grown(given)
                best.parameters = _kept(best.parameters, grown, ids, better[ids])
        best.score = np.where(better, now, best.score)
        best.update = np.where(better, update, best.update)

    def best_parameters(self) -> list[Parameters]:
        """By batch, of those in training."""
        assert self.best is not None
        index = [ids[0] if self.per_batch == 1 else ids for ids in self._slots()]
        whole = self.best.parameters
        chosen = [jax.tree.map(lambda x, ids=ids: x[ids], whole) for ids in index]
        if self.programs.places is None:
            return chosen
        at = self.programs.places.state
        return multihost.put(chosen, [Parameters(at.params, at.normalisers)] * len(chosen))

    def keep(self, members: Sequence[int] | np.ndarray) -> None:
        """Only these go on; they take the places of the others, batch by batch."""
        places = np.searchsorted(self.alive, np.sort(members))
        states = self.population.take(self.states(), places)
        self.alive = np.sort(np.asarray(members))
        self._split(states)

    def copy(self, source: np.ndarray) -> None:
        """Every member in training goes on with what `source[i]` has learned, in its own worlds
        and with its own chance; both are places among those in training."""
        own = self.states()
        other = self.population.take(own, source)
        learned = {name: getattr(other, name) for name in ("params", "opt_state", "value_norm")}
        normalisers = own.normalisers.inherit(other.normalisers)
        self._split(own.replace(**learned, normalisers=normalisers))

    def states(self) -> State:
        """`[A, …]`, in the order of `alive`."""
        if self.per_batch == 1:
            return self.population.stack(self.batches)
        joined = self.population.join(self.batches)
        return self.population.take(joined, np.arange(len(self.alive)))

    def snapshot(self) -> tuple[Snapshot, dict[str, Any]]:
        """As arrays of this process, and what else belongs to it. All processes must ask."""
        if self.best is None:
            self.keep_best(np.full(len(self.alive), -np.inf), 0, self.parameters())
        best = self.best
        assert best is not None
        states = self.batches[0] if self.alone else self.states()
        hyper = jax.tree.map(lambda x: jnp.asarray(x, float), self.hyper)
        states, parameters = multihost.fetched((states, best.parameters), self.mesh)
        about = {
            "alive": self.alive.tolist(),
            "best_score": best.score.tolist(),
            "best_update": best.update.tolist(),
        }
        return Snapshot(states, parameters, hyper), about

    def _split(self, states: State) -> None:
        places = [np.searchsorted(self.alive, ids) for ids in self._slots()]
        index = [at[0] if self.per_batch == 1 else at for at in places]
        taken = (self.population.take(states, at) for at in index)
        self.batches = [self._placed("state", state) for state in taken]

    def _placed(self, what: str, tree: Any) -> Any:
        """On the devices where the programs expect it."""
        places = self.programs.places
        return tree if places is None else multihost.put(tree, getattr(places, what))

    def _slots(self) -> list[np.ndarray]:
        """The members of each batch; the last batch is filled up with its last member again."""
        size, count = self.per_batch, len(self.alive)
        filled = np.minimum(np.arange(-(-count // size) * size), count - 1)
        return list(self.alive[filled].reshape(-1, size))

    def _in_order(self, parts: Sequence[Any]) -> np.ndarray:
        """What batches gave, `[A, …]`."""
        if self.per_batch == 1:
            return np.stack(parts)
        return np.concatenate(parts)[: len(self.alive)]

    def _grown(self, given: Parameters) -> Parameters:
        return jax.tree.map(lambda x: x[None], given) if self.per_batch == 1 else given

    def _hyper(self, ids: np.ndarray) -> Hyper:
        if self.per_batch == 1:
            return jax.tree.map(lambda x: float(x[ids[0]]), self.hyper)
        return jax.tree.map(lambda x: x[ids].astype(np.float32), self.hyper)

    def _keys(self, ids: np.ndarray) -> tuple[jax.Array, jax.Array]:
        """For training, and for evaluation."""
        pairs = [jax.random.split(jax.random.key(self.seeds[i])) for i in ids]
        init, play = (jnp.stack([pair[which] for pair in pairs]) for which in (0, 1))
        return (init[0], play[0]) if self.per_batch == 1 else (init, play)


@jax.jit
def _kept(best: Parameters, given: Parameters, ids: jax.Array, better: jax.Array) -> Parameters:
    def choose(old: jax.Array, new: jax.Array) -> jax.Array:
        flags = better.reshape(-1, *(1,) * (new.ndim - 1))
        return old.at[ids].set(jnp.where(flags, new, old[ids]))

    return jax.tree.map(choose, best, given)


def make_crew(config: Config, members: Members | None = None) -> Crew:
    """`members`: the configuration's seeds, unless others are given."""
    trainer, hyper = make_trainer(config)
    alone = members is None and config.seeds == 1
    if members is None:
        members = Members.alike(range(config.seed, config.seed + config.seeds), hyper)
    count, asked = len(members.seeds), config.members_per_batch
    size = min(count, asked) if asked else side_by_side(count, config.num_envs)
    devices = chosen_devices(config, count, size)
    limit = None if asked else free_bytes()
    return Crew(trainer, members, config.eval_episodes, size, limit, devices, alone)
