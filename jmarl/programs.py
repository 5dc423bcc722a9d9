"""The three programs of a run, compiled side by side."""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jmarl.devices import MEMBER, Places, places, shared_out, spread
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
    step_bytes: int  # of memory that a step needs on one device, its state included
    places: Places | None  # where its arguments lie, if not on a single device


def compile_programs(
    trainer: Trainer, hyper: Hyper, episodes: int, members: int = 1, mesh: Mesh | None = None
) -> Programs:
    """`trainer.init`, `trainer.step` and the scoring of parameters. Scoring is compiled while the
    first updates run already; its first call waits for it. One member is not vmapped."""
    at = None if mesh is None else places(trainer, hyper, mesh, batched=members > 1)
    key = jax.eval_shape(lambda: _keys(members))
    flag = jax.ShapeDtypeStruct((), bool)
    traced_init = jitted_init(trainer, members, at).trace(key)
    state = traced_init.out_info
    fast = fast_code()
    pool = ThreadPoolExecutor()
    compiled_init = pool.submit(traced_init.lower().compile)
    step = jitted_step(trainer, members, at)
    compiled_step = frugally(step.lower(state, jax.tree.map(_like, hyper)).compile, fast)
    jitted_score = jax.jit(_score(trainer, episodes, members, mesh), **_placed(at, "score"))
    lowered_score = jitted_score.lower(state.params, state.normalisers, key, flag)
    compiled_score = pool.submit(frugally, lowered_score.compile, fast)
    pool.shutdown(wait=False)
    return Programs(
        init=compiled_init.result(),
        step=compiled_step,
        score=lambda *given: compiled_score.result()(*given),
        step_bytes=_bytes(compiled_step),
        places=at,
    )


def frugally(compile: Callable[..., Any], *given: Any) -> Any:
    """What compiling took of the process's memory, hundreds of megabytes, goes back to the system:
    glibc would keep it."""
    compiled = compile(*given)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)
    return compiled


def jitted_init(trainer: Trainer, members: int, at: Places | None) -> Any:
    """It runs once, for milliseconds: optimising it would cost seconds."""
    init = trainer.init if members == 1 else Population(trainer).init
    unoptimised: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}
    if jax.default_backend() == "cpu":  # with much less memory
        unoptimised["xla_cpu_use_fusion_emitters"] = False
    return jax.jit(init, compiler_options=unoptimised, **_placed(at, "init"))


def jitted_step(trainer: Trainer, members: int, at: Places | None) -> Any:
    """It takes the memory of its state."""
    step = trainer.step if members == 1 else Population(trainer).step
    shared = step if at is None else shared_out(step, at)
    return jax.jit(shared, donate_argnums=0, **_placed(at, "step"))


def fast_code() -> dict[str, str | bool]:
    """Compiler options. XLA for CPUs keeps to half of AVX-512's registers unless told otherwise:
    training is 1.03 to 1.08 times as fast in all of them (Zen 5). Other processors have none to
    use."""
    return {"xla_cpu_prefer_vector_width": "512"} if jax.default_backend() == "cpu" else {}


def _score(trainer: Trainer, episodes: int, members: int, mesh: Mesh | None) -> Callable:
    share_out = (lambda worlds: worlds) if mesh is None else spread(trainer.env, mesh)

    def score(
        params: tuple[Any, ...], norms: Normalisers, key: jax.Array, deterministic: jax.Array
    ) -> Episodes:
        env, groups = trainer.env, trainer.groups
        return play_episodes(env, groups, params, key, episodes, deterministic, norms, share_out)

    if members == 1:
        return score
    axis = None if mesh is None else MEMBER
    return jax.vmap(score, in_axes=(0, 0, 0, None), spmd_axis_name=axis)


def _placed(at: Places | None, program: str) -> dict[str, Any]:
    if at is None:
        return {}
    ins, outs = {
        "init": (at.own, at.state),
        "step": ((at.state, at.hyper), (at.state, at.everywhere)),
        "score": (
            (at.state.params, at.state.normalisers, at.own, at.everywhere),
            at.everywhere,
        ),
    }[program]
    return {"in_shardings": ins, "out_shardings": outs}


def _like(number: Any) -> Any:
    """Its shape; of plain numbers themselves, so that their types stay weak."""
    return jax.ShapeDtypeStruct(number.shape, number.dtype) if jnp.ndim(number) else number


def _keys(members: int) -> jax.Array:
    key = jax.random.key(0)
    return jax.random.split(key, members) if members > 1 else key


def _bytes(program: Any) -> int:
    """What XLA says; backends that say nothing count as needing nothing."""
    told = program.memory_analysis()
    if told is None:
        return 0
    return told.argument_size_in_bytes + told.output_size_in_bytes + told.temp_size_in_bytes
