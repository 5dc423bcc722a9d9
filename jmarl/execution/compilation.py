"""The three programs of a run, compiled side by side."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jmarl.execution.compiler import compile_and_trim, fast_options, quick_options
from jmarl.execution.in_flight import Bounded
from jmarl.execution.members import Policies
from jmarl.execution.sharding import MEMBER_AXIS, ProgramShardings, places, shard_step, spread
from jmarl.learning.episodes import Episodes, play_episodes
from jmarl.learning.ppo_loss import HyperParams
from jmarl.learning.trainer import Trainer
from jmarl.learning.vmapped import VmappedTrainer
from jmarl.types import Metrics, TrainState


class Programs(NamedTuple):
    """The programs of one run, or of a batch of members, where every array has a leading axis."""

    init: Callable[[jax.Array], TrainState]
    step: Callable[
        [TrainState, HyperParams], tuple[TrainState, Metrics]
    ]  # donates the state's buffers
    score: Callable[..., Episodes]  # (policies, key, deterministic)
    step_bytes: int  # of memory that a step needs on one device, its state included
    places: ProgramShardings | None  # where its arguments lie, if not on a single device


def compile_programs(
    trainer: Trainer, hyper: HyperParams, episodes: int, members: int = 1, mesh: Mesh | None = None
) -> Programs:
    """Compiles `trainer.init`, `trainer.step` and the scoring of policies. Scoring compiles in the
    background while the first updates run; its first call waits for it. One member is not
    vmapped."""
    at = None if mesh is None else places(trainer, hyper, mesh, batched=members > 1)
    key = jax.eval_shape(lambda: _keys(members))
    flag = jax.ShapeDtypeStruct((), bool)
    traced_init = jitted_init(trainer, members, at).trace(key)
    state = traced_init.out_info
    fast = fast_options()
    pool = ThreadPoolExecutor()
    compiled_init = pool.submit(traced_init.lower().compile)
    compiled_step = compile_step(trainer, members, at, state, jax.tree.map(_like, hyper))
    jitted_score = jax.jit(_score(trainer, episodes, members, mesh), **_placed(at, "score"))
    lowered_score = jitted_score.lower(state.policies, key, flag)
    compiled_score = pool.submit(compile_and_trim, lowered_score.compile, fast)
    pool.shutdown(wait=False)
    return Programs(
        init=compiled_init.result(),
        step=Bounded(compiled_step),
        score=lambda *given: compiled_score.result()(*given),
        step_bytes=_bytes(compiled_step),
        places=at,
    )


def jitted_init(trainer: Trainer, members: int, at: ProgramShardings | None) -> Any:
    init = trainer.init if members == 1 else VmappedTrainer(trainer).init
    return jax.jit(init, compiler_options=quick_options(), **_placed(at, "init"))


def jitted_step(trainer: Trainer, members: int, at: ProgramShardings | None) -> Any:
    """Donates the state's buffers."""
    step = (trainer if members == 1 else VmappedTrainer(trainer)).step_alike
    shared = step if at is None else shard_step(step, at)
    return jax.jit(shared, donate_argnums=0, **_placed(at, "step"))


def compile_step(
    trainer: Trainer,
    members: int,
    at: ProgramShardings | None,
    state: TrainState,
    hyper: HyperParams,
) -> Any:
    """The step for arguments of these shapes. Call it through `Bounded`."""
    lowered = jitted_step(trainer, members, at).lower(state, hyper)
    return compile_and_trim(lowered.compile, fast_options())


def _score(trainer: Trainer, episodes: int, members: int, mesh: Mesh | None) -> Callable:
    share_out = (lambda worlds: worlds) if mesh is None else spread(trainer.env, mesh)

    def score(policies: Policies, key: jax.Array, deterministic: jax.Array) -> Episodes:
        env, players = trainer.env, trainer.players
        return play_episodes(env, players, policies, key, episodes, deterministic, share_out)

    if members == 1:
        return score
    axis = None if mesh is None else MEMBER_AXIS
    return jax.vmap(score, in_axes=(0, 0, None), spmd_axis_name=axis)


def _placed(at: ProgramShardings | None, program: str) -> dict[str, Any]:
    if at is None:
        return {}
    ins, outs = {
        "init": (at.own, at.state),
        "step": ((at.state, at.hyper), (at.state, at.everywhere)),
        "score": ((at.state.policies, at.own, at.everywhere), at.everywhere),
    }[program]
    return {"in_shardings": ins, "out_shardings": outs}


def _like(number: Any) -> Any:
    """An array's shape; a plain number itself, so that its type stays weak."""
    return jax.ShapeDtypeStruct(number.shape, number.dtype) if jnp.ndim(number) else number


def _keys(members: int) -> jax.Array:
    key = jax.random.key(0)
    return jax.random.split(key, members) if members > 1 else key


def _bytes(program: Any) -> int:
    """Memory as XLA reports it; 0 for backends that do not."""
    known = program.memory_analysis()
    if known is None:
        return 0
    return known.argument_size_in_bytes + known.output_size_in_bytes + known.temp_size_in_bytes
