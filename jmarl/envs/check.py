"""Tells what a new world gets wrong: first its description and its shapes, then how it plays."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from jmarl.envs.base import Env, EnvSpec, make
from jmarl.envs.check_play import play_faults
from jmarl.plugins import explained
from jmarl.types import TimeStep

WORLDS = 3  # that are looked at together
LONGEST = 100  # steps that are played, at most


class Field(NamedTuple):
    """What an array of a time step must be."""

    axes: tuple[str, ...]
    kind: str  # of its dtype
    called: str


FLOAT, BOOL = "f", "b"
KINDS = {FLOAT: "floating point", BOOL: "bool"}
FIELDS = {
    "obs": Field(("worlds", "agents", "obs_size"), FLOAT, "the observations"),
    "state": Field(("worlds", "state_size"), FLOAT, "the global state"),
    "action_mask": Field(("worlds", "agents", "entries"), BOOL, "the legal actions"),
    "active": Field(("worlds", "agents"), BOOL, "who acts"),
    "reward": Field(("worlds", "agents"), FLOAT, "the rewards"),
    "terminated": Field(("worlds", "agents"), BOOL, "whose episode has truly ended"),
    "truncated": Field(("worlds",), BOOL, "which episodes a time limit has cut"),
    "final_obs": Field(("worlds", "agents", "obs_size"), FLOAT, "obs before any reset"),
    "final_state": Field(("worlds", "state_size"), FLOAT, "state before any reset"),
    "final_action_mask": Field(("worlds", "agents", "entries"), BOOL, "action_mask before it"),
}


def check_env(env: Env | str, steps: int | None = None) -> list[str]:
    """What is wrong with a world, in sentences; an empty list if nothing was found.

    `env`: the world or its name. It plays `steps` steps with random legal actions; by default as
    many as show how an episode ends, at most 100."""
    world = make(env) if isinstance(env, str) else env
    faults = list(_spec_faults(world.spec))
    if not faults:
        faults = shape_faults(world)
    if not faults:
        length = world.spec.episode_length or LONGEST
        faults = list(play_faults(world, WORLDS, steps or min(length + 2, LONGEST)))
    return list(dict.fromkeys(faults))


def shape_faults(env: Env) -> list[str]:
    """What is wrong with the shapes and dtypes of `reset` and `step`; nothing is computed."""
    try:
        state, first = jax.eval_shape(lambda: env.reset(jax.random.key(0), WORLDS))
    except Exception as error:
        return [f"reset fails: {_told(error)}"]
    faults = list(_time_step_faults(env.spec, first, "reset"))
    action = jax.eval_shape(lambda: _some_action(env.spec))
    try:
        after, second = jax.eval_shape(env.step, jax.eval_shape(_key), state, action)
    except Exception as error:
        return [*faults, f"step fails: {_told(error)}"]
    faults += _time_step_faults(env.spec, second, "step")
    return faults + list(_state_faults(state, after))


def _spec_faults(spec: EnvSpec) -> Iterator[str]:
    """Of the static description."""
    try:
        hash(spec)
    except TypeError as error:
        yield f"spec cannot be hashed, as jax.jit requires ({error}): use tuples, not lists."
        return
    count = len(spec.agents)
    if not count:
        yield "spec.agents is empty."
    if twice := [name for name, times in Counter(spec.agents).items() if times > 1]:
        yield f"spec.agents has {twice[0]!r} twice."
    members = sorted(agent for team in spec.teams for agent in team.agents)
    if members != list(range(count)):
        yield f"spec.teams must have every agent 0 … {count - 1} once, but has {members}."
    for name in ("obs_sizes", "action_spaces"):
        if (size := len(getattr(spec, name))) != count:
            yield f"spec.{name} has {size} entries, but there are {count} agents."
    if any(size < 1 for size in spec.obs_sizes):
        yield f"spec.obs_sizes={spec.obs_sizes} must be at least 1 each."
    if spec.obs_shape is not None and not _is_image(spec):
        yield (
            f"spec.obs_shape={spec.obs_shape} must be (height, width, channels), with as many "
            f"entries as every agent's observation has: spec.obs_sizes={spec.obs_sizes}."
        )
    if spec.episode_length is not None and spec.episode_length < 1:
        yield f"spec.episode_length={spec.episode_length} must be at least 1, or None."


def _is_image(spec: EnvSpec) -> bool:
    shape = spec.obs_shape or ()
    return len(shape) == 3 and set(spec.obs_sizes) == {math.prod(shape)}


def _time_step_faults(spec: EnvSpec, step: Any, function: str) -> Iterator[str]:
    """Of what `reset` or `step` returns."""
    if not isinstance(step, TimeStep):
        yield f"{function} must return (state, TimeStep), not (state, {type(step).__name__})."
        return
    sizes = {
        "worlds": WORLDS,
        "agents": spec.num_agents,
        "obs_size": spec.obs_size,
        "state_size": spec.state_size,
        "entries": spec.action_mask.shape[1],
    }
    for name, field in FIELDS.items():
        found, shape = getattr(step, name), tuple(sizes[axis] for axis in field.axes)
        if not hasattr(found, "shape"):
            yield f"{function}: {name}, {field.called}, is {type(found).__name__}, not an array."
        elif found.shape != shape:
            axes = f"{shape} = [{', '.join(field.axes)}]"
            yield f"{function}: {name}, {field.called}, has shape {found.shape}, not {axes}."
        elif np.dtype(found.dtype).kind != field.kind:
            yield f"{function}: {name}, {field.called}, is {found.dtype}, not {KINDS[field.kind]}."
    if spec.winnable != (step.won is not None):
        yield f"{function}: won is set where spec.winnable=True, and None elsewhere."


def _state_faults(before: Any, after: Any) -> Iterator[str]:
    """`step` must return a state like the one that it was given."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        yield "step returns a state of another structure than reset."
        return
    for (path, a), (_, b) in zip(*map(jax.tree.leaves_with_path, (before, after)), strict=True):
        was, now = (f"{x.dtype}{list(x.shape)}" for x in (a, b))
        if was != now:
            name = jax.tree_util.keystr(path) or "the state"
            yield f"step turns the state's {name}, {was} of reset, into {now}."


def _some_action(spec: EnvSpec) -> jax.Array:
    return spec.action_space.sample(jax.random.key(0), (WORLDS, spec.num_agents))


def _key() -> jax.Array:
    return jax.random.key(0)


def _told(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return explained(error) or f"{type(error).__name__}: {lines[0]}"
