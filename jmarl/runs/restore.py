"""From a checkpoint to the point where training resumes."""

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.execution import multihost
from jmarl.execution.members import Best, Snapshot
from jmarl.execution.named_leaves import named_arrays, unflatten_named
from jmarl.execution.population import Population
from jmarl.runs.files import RUN_ID
from jmarl.runs.loop import ResumePoint
from jmarl.runs.saved_parameters import snapshot_shapes

if TYPE_CHECKING:
    from jmarl.runs.checkpoint import Checkpoints
    from jmarl.runs.recorder import Recorder


def resume_run(checkpoints: "Checkpoints", population: Population) -> ResumePoint:
    """The latest state of a run that trains alone, and the parameters of its best checkpoint."""
    like = population.trainer.shapes
    latest, best = checkpoints.latest(like), checkpoints.best(like)
    return ResumePoint(
        states=population.vmapped.stack([latest.state]),
        active=population.active,
        update=latest.update,
        seconds=latest.about["seconds"],
        span=latest.about.get("span"),
        run=latest.about.get(RUN_ID),
        best=Best(
            score=np.array([best.about["score"]]),
            update=np.array([best.update]),
            parameters=jax.tree.map(lambda x: x[None], best.state.policies),
        ),
    )


def resume_members(checkpoints: "Checkpoints", population: Population) -> ResumePoint:
    """The latest states and best parameters of all members."""
    saved = checkpoints.latest(partial(snapshot_shapes, population.vmapped, population.hyper))
    return _resume_point(population, saved.state, saved.about)


def _resume_point(population: Population, saved: Snapshot, about: dict[str, Any]) -> ResumePoint:
    """Members of a sweep go on with the checkpoint's hyperparameters, which may have changed."""
    if not population.configured:
        population.hyper = jax.tree.map(np.asarray, saved.hyper)
    best = Best(np.array(about["best_score"]), np.array(about["best_update"]), saved.best)
    return ResumePoint(
        states=saved.states,
        active=np.array(about["alive"]),
        update=about["update"],
        seconds=about["seconds"],
        best=best,
        failed={int(member): what for member, what in about["failed"].items()},
        complete=about.get("complete", False),
        span=about.get("span"),
        run=about.get(RUN_ID),
    )


def shared_resume_point(population: Population, recorder: "Recorder") -> ResumePoint:
    """What the main process restores, in all processes."""
    if not multihost.is_multihost():
        return recorder.restore(population)
    packed = multihost.broadcast_from_main(lambda: _packed(population, recorder))
    about, arrays = multihost.unpacked(packed)
    if not about:
        return ResumePoint()
    shapes = snapshot_shapes(population.vmapped, population.hyper, about)
    return _resume_point(population, unflatten_named(shapes, arrays), about)


def _packed(population: Population, recorder: "Recorder") -> bytes:
    start = recorder.restore(population)
    if start.states is None or start.best is None or start.active is None:
        return multihost.packed({}, {})
    about = {
        "update": start.update,
        "seconds": start.seconds,
        "failed": start.failed,
        "complete": start.complete,
        "span": start.span,
        RUN_ID: start.run,
        "alive": start.active.tolist(),
        "best_score": start.best.score.tolist(),
        "best_update": start.best.update.tolist(),
    }
    hyper = jax.tree.map(jnp.asarray, population.hyper)
    arrays = named_arrays(Snapshot(start.states, start.best.parameters, hyper))
    return multihost.packed(about, arrays)
