"""The three programs of a run, compiled side by side."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax

from jmarl.evaluation import Episodes, play_episodes
from jmarl.normalize import Normalisers
from jmarl.objective import Hyper
from jmarl.trainer import Trainer
from jmarl.types import Metrics, State


class Programs(NamedTuple):
    init: Callable[[jax.Array], State]
    step: Callable[[State, Hyper], tuple[State, Metrics]]  # takes the memory of its state
    score: Callable[..., Episodes]  # (params, normalisers, key, deterministic)


def compile_programs(trainer: Trainer, hyper: Hyper, episodes: int) -> Programs:
    """`trainer.init`, `trainer.step` and the scoring of parameters. Scoring is compiled while the
    first updates run already; its first call waits for it."""

    def score(
        params: tuple[Any, ...], norms: Normalisers, key: jax.Array, deterministic: jax.Array
    ) -> Episodes:
        env, groups = trainer.env, trainer.groups
        return play_episodes(env, groups, params, key, episodes, deterministic, norms)

    key = jax.eval_shape(lambda: jax.random.key(0))
    flag = jax.ShapeDtypeStruct((), bool)
    init = jax.jit(trainer.init).trace(key)
    state = init.out_info
    # Initialisation runs once, for milliseconds: optimising it would cost seconds.
    unoptimised: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}
    pool = ThreadPoolExecutor()
    compiled_init = pool.submit(init.lower().compile, unoptimised)
    step = jax.jit(trainer.step, donate_argnums=0).lower(state, hyper).compile()
    lowered_score = jax.jit(score).lower(state.params, state.normalisers, key, flag)
    compiled_score = pool.submit(lowered_score.compile)
    pool.shutdown(wait=False)
    return Programs(compiled_init.result(), step, lambda *given: compiled_score.result()(*given))
