"""Plays a world with random legal actions, and tells what is wrong with what it returned."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jmarl.envs.base import Env, EnvSpec
from jmarl.envs.spaces import Box
from jmarl.types import TimeStep

NUMBERS = ("obs", "state", "reward", "final_obs", "final_state")
FINAL = {"obs": "final_obs", "state": "final_state", "action_mask": "final_action_mask"}
SEED = 3
CLOSE = 1e-4  # relative and absolute, for XLA rounds other shapes in other ways


class Observed(NamedTuple):
    """What a world returned. What must be equal stands side by side."""

    first: TimeStep
    played: TimeStep  # [T, …]
    resets: tuple[TimeStep, TimeStep]  # of equal keys
    of_one: tuple[TimeStep, TimeStep]  # the first of several worlds, and alone, of equal keys
    steps: tuple[TimeStep, TimeStep]  # of equal keys, states and actions
    bounds: tuple[TimeStep, TimeStep] | None  # of actions at their bounds, and beyond


def play_faults(env: Env, worlds: int, steps: int) -> Iterator[str]:
    """Of a world whose shapes are right."""
    # a scan of one step compiles it all as one program
    _, seen = lax.scan(lambda _, __: (None, _observe(env, worlds, steps)), None, length=1)
    seen: Observed = jax.tree.map(lambda x: np.asarray(x)[0], seen)
    for step, function in ((seen.first, "reset"), (seen.played, "step")):
        yield from _number_faults(env.spec, step, function)
        yield from _mask_faults(env.spec, step, function)
    if seen.first.terminated.any() or seen.first.truncated.any():
        yield "reset: terminated or truncated is True, but an episode begins."
    yield from _ending_faults(env.spec, seen.first, seen.played)
    yield from _final_faults(seen.first, seen.played)
    yield from _chance_faults(seen)


def _observe(env: Env, worlds: int, steps: int) -> Observed:
    def key(number: int) -> jax.Array:  # a new one each time, as jax's check for reuse asks
        return jax.random.fold_in(jax.random.key(SEED), number)

    def keys(number: int) -> jax.Array:
        return jax.random.split(key(number), worlds)

    first, played = _play(env, key(0), worlds, steps)
    state, one = env.reset(keys(1), worlds)
    action = legal_action(env.spec, key(2), one.action_mask)
    bounds = None
    if isinstance(env.spec.action_space, Box) and env.spec.action_space.bounded:
        low, high = (jnp.asarray(side, action.dtype)[None] for side in env.spec.action_bounds)
        at, beyond = high + 0 * action, high + 2 * (high - low) + 0 * action
        bounds = env.step(keys(3), state, at)[1], env.step(keys(3), state, beyond)[1]
    return Observed(
        first=first,
        played=played,
        resets=(one, env.reset(keys(1), worlds)[1]),
        of_one=(jax.tree.map(lambda x: x[:1], one), env.reset(keys(1)[:1], 1)[1]),
        steps=(env.step(keys(3), state, action)[1], env.step(keys(3), state, action)[1]),
        bounds=bounds,
    )


def _play(env: Env, key: jax.Array, worlds: int, steps: int) -> tuple[TimeStep, TimeStep]:
    """The first time step, and those after with an axis of time before all others."""
    reset_key, play_key = jax.random.split(key)
    state, first = env.reset(reset_key, worlds)

    def step(carry: tuple[Any, Any], key: jax.Array) -> tuple[tuple[Any, Any], TimeStep]:
        state, mask = carry
        act_key, step_key = jax.random.split(key)
        action = legal_action(env.spec, act_key, mask)
        state, timestep = env.step(step_key, state, action)
        return (state, timestep.action_mask), timestep

    keys = jax.random.split(play_key, steps)
    return first, lax.scan(step, (state, first.action_mask), keys)[1]


def legal_action(spec: EnvSpec, key: jax.Array, mask: jax.Array) -> jax.Array:
    """Random, for masks `[E, N, A]`."""
    space, shape = spec.action_space, mask.shape[:2]
    if isinstance(space, Box):
        low, high = (np.where(np.isfinite(side), side, end) for side, end in _sides(spec))
        unit = jax.random.uniform(key, (*shape, space.size))
        return jnp.asarray(low, unit.dtype)[None] + jnp.asarray(high - low, unit.dtype)[None] * unit
    scores = jnp.where(mask, jax.random.uniform(key, mask.shape), -1.0)
    heads = jnp.split(scores, np.cumsum(space.heads)[:-1], axis=-1)
    return jnp.stack([head.argmax(-1) for head in heads], -1).reshape(*shape, *space.shape)


def _sides(spec: EnvSpec) -> Iterator[tuple[np.ndarray, float]]:
    """The bounds, each with what stands for infinity."""
    yield from zip(spec.action_bounds, (-1.0, 1.0), strict=True)


def _number_faults(spec: EnvSpec, step: TimeStep, function: str) -> Iterator[str]:
    for name in NUMBERS:
        numbers = getattr(step, name)
        for fault, found in (("NaN", np.isnan(numbers)), ("infinite", np.isinf(numbers))):
            if count := int(found.sum()):
                yield f"{function}: {name} is {fault} in {count} of {numbers.size} entries."
    for name in ("obs", "final_obs"):
        padding = getattr(step, name)[..., ~spec.obs_mask]
        if (padding != 0).any():
            yield f"{function}: {name} is not 0 beyond an agent's own spec.obs_sizes entries."


def _mask_faults(spec: EnvSpec, step: TimeStep, function: str) -> Iterator[str]:
    for name in ("action_mask", "final_action_mask"):
        mask, own = (
            getattr(step, name),
            np.broadcast_to(spec.action_mask, getattr(step, name).shape),
        )
        if (mask & ~own).any():
            yield f"{function}: {name} allows actions that the agent's space does not have."
        elif not mask.any(-1).all():
            yield f"{function}: {name} allows an agent no action at all."
        elif not spec.varying_action_mask and (mask != own).any():
            yield f"{function}: {name} forbids actions, but spec.varying_action_mask is False."


def _ending_faults(spec: EnvSpec, first: TimeStep, played: TimeStep) -> Iterator[str]:
    """Of ends: terminated and truncated."""
    over = played.truncated | played.terminated.all(-1)  # [T, E]
    age = np.zeros(over.shape[1], int)
    out = np.zeros_like(first.terminated)
    for t in range(len(over)):
        age += 1
        if (out & ~played.terminated[t]).any():
            yield "terminated turns False again before its world's episode has ended."
        if (out & ~over[t][:, None] & played.active[t]).any():
            yield "active is True of an agent that terminated in an earlier step of the episode."
        if spec.episode_length is not None and (age >= spec.episode_length)[~over[t]].any():
            yield (
                f"an episode goes on after spec.episode_length={spec.episode_length} steps: "
                "truncated must be True at its last one."
            )
        out = np.where(over[t][:, None], False, played.terminated[t])
        age = np.where(over[t], 0, age)
    alike = played.terminated == played.terminated[..., :1]
    if not spec.agents_leave and not alike.all():
        yield "an agent terminates before the others, but spec.agents_leave is False."
    if spec.in_step and (over != over[:, :1]).any():
        yield "worlds end at different steps, but spec.in_step is True."


def _final_faults(first: TimeStep, played: TimeStep) -> Iterator[str]:
    """Of views before and after a reset."""
    over = played.truncated | played.terminated.all(-1)
    for name, final in FINAL.items():
        now, last = getattr(played, name), getattr(played, final)
        if (now[~over] != last[~over]).any():
            yield f"{final} differs from {name} where no episode ends."
    before = np.concatenate([first.obs[None], played.obs[:-1]])
    moves = (played.final_obs != before).any((-1, -2)).mean() > 0.5
    if moves and over.any() and (played.obs[over] == played.final_obs[over]).all():
        yield (
            "where an episode ends, obs and final_obs are the same: final_obs is the last "
            "observation of the episode, obs the first of the next one."
        )


def _chance_faults(seen: Observed) -> Iterator[str]:
    """Of what depends on more than the key, and of actions out of bounds."""
    if not _same(*seen.resets):
        yield "reset returns something else for the same key: draw all that is random from the key."
    elif not _same(*seen.of_one):
        yield "reset: with one key per world, a world depends on the other worlds' keys."
    if not _same(*seen.steps):
        yield "step returns something else for the same key, state and action."
    if seen.bounds is not None and not _same(*seen.bounds):
        yield "step does not clip actions to their bounds: call spec.clip(action) first."


def _same(one: Any, other: Any) -> bool:
    return all(
        np.allclose(a, b, CLOSE, CLOSE, equal_nan=True)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )
