"""The three programs of a run, compiled side by side."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax

from jmarl.evaluation import Episodes, play_episodes
from jmarl.normalize import Normalisers
from jmarl.objective import Hyper
from jmarl.population import Population
from jmarl.trainer import Trainer
from jmarl.types import Metrics, State


class Programs(NamedTuple):
    """Of one run; or of a batch of members, where everything has a leading axis for them."""

    init: Callable[[jax.Array], State]
    step: Callable[[State, Hyper], tuple[State, Metrics]]  # takes the memory of its state
    score: Callable[..., Episodes]  # (params, normalisers, key, deterministic)
    step_bytes: int  # of memory that a step needs, its state included


def compile_programs(trainer: Trainer, hyper: Hyper, episodes: int, members: int = 1) -> Programs:
    """`trainer.init`, `trainer.step` and the scoring of parameters. Scoring is compiled while the
    first updates run already; its first call waits for it. One member is not vmapped."""
    population = Population(trainer)

    def score(
        params: tuple[Any, ...], norms: Normalisers, key: jax.Array, deterministic: jax.Array
    ) -> Episodes:
        if members > 1:
            return population.play(params, norms, key, episodes, deterministic)
        env, groups = trainer.env, trainer.groups
        return play_episodes(env, groups, params, key, episodes, deterministic, norms)

    init, step = (population.init, population.step) if members > 1 else (trainer.init, trainer.step)
    key = jax.eval_shape(lambda: _keys(members))
    flag = jax.ShapeDtypeStruct((), bool)
    traced_init = jax.jit(init).trace(key)
    state = traced_init.out_info
    # Initialisation runs once, for milliseconds: optimising it would cost seconds.
    unoptimised: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}
    pool = ThreadPoolExecutor()
    compiled_init = pool.submit(traced_init.lower().compile, unoptimised)
    compiled_step = jax.jit(step, donate_argnums=0).lower(state, hyper).compile()
    lowered_score = jax.jit(score).lower(state.params, state.normalisers, key, flag)
    compiled_score = pool.submit(lowered_score.compile)
    pool.shutdown(wait=False)
    return Programs(
        init=compiled_init.result(),
        step=compiled_step,
        score=lambda *given: compiled_score.result()(*given),
        step_bytes=_bytes(compiled_step),
    )


def _keys(members: int) -> jax.Array:
    key = jax.random.key(0)
    return jax.random.split(key, members) if members > 1 else key


def _bytes(program: Any) -> int:
    """What XLA says; backends that say nothing count as needing nothing."""
    told = program.memory_analysis()
    if told is None:
        return 0
    return told.argument_size_in_bytes + told.output_size_in_bytes + told.temp_size_in_bytes
