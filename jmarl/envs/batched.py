"""Turns a single world, as other libraries write them, into an `Env`: vmap and automatic reset."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import chex
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Key, Num, PyTree, Shaped

from jmarl.envs.base import EnvSpec, keys_per_world
from jmarl.types import TimeStep


class View(NamedTuple):
    """What the agents of one world perceive."""

    obs: Float[Array, "N O"]
    state: Float[Array, " S"]
    action_mask: Bool[Array, "N A"]
    active: Bool[Array, " N"]


class StepResult(NamedTuple):
    """The result of one step of one world, before any reset."""

    view: View
    reward: Float[Array, " N"]
    terminated: Bool[Array, "*N"]  # per agent, or one for all
    truncated: Bool[Array, ""]
    won: Bool[Array, ""] | None = None  # if and only if `spec.winnable`


class SingleWorld(Protocol):
    """One world that does not reset itself."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: Key[Array, ""]) -> tuple[PyTree, View]: ...

    def step(
        self, key: Key[Array, ""], state: PyTree, action: Num[Array, " N *entries"]
    ) -> tuple[PyTree, StepResult]: ...


@dataclass(frozen=True)
class Batched:
    """An `Env` of E independent copies of one world; each resets when its own episode ends."""

    world: SingleWorld

    @property
    def spec(self) -> EnvSpec:
        return self.world.spec

    def reset(self, key: Key[Array, "*worlds"], num_envs: int) -> tuple[PyTree, TimeStep]:
        state, view = jax.vmap(self.world.reset)(keys_per_world(key, num_envs))
        false = jnp.zeros(num_envs, bool)
        reward = jnp.zeros((num_envs, self.spec.num_agents), view.obs.dtype)
        won = false if self.spec.winnable else None
        terminated = jnp.zeros_like(view.active)
        return state, _time_step(view, StepResult(view, reward, terminated, false, won))

    def step(
        self, key: Key[Array, "*worlds"], state: PyTree, action: Num[Array, "E N *entries"]
    ) -> tuple[PyTree, TimeStep]:
        num_envs = action.shape[0]
        derived = jax.vmap(jax.random.fold_in, (0, None))
        keys = keys_per_world(key, num_envs)
        step_keys = derived(keys, 0)
        state, outcome = jax.vmap(self.world.step)(step_keys, state, self.spec.clip(action))
        terminated = _append_axes(outcome.terminated, outcome.reward)
        outcome = outcome._replace(terminated=jnp.broadcast_to(terminated, outcome.reward.shape))
        ended = outcome.truncated | outcome.terminated.all(-1)

        def restart() -> tuple[PyTree, View]:
            initial = jax.vmap(self.world.reset)(derived(keys, 1))
            return jax.tree.map(
                lambda new, old: jnp.where(_append_axes(ended, old), new.astype(old.dtype), old),
                initial,
                (state, outcome.view),
            )

        # Resetting all worlds costs as much as a step, so reset only if an episode has ended.
        state, view = lax.cond(ended.any(), restart, lambda: (state, outcome.view))
        return state, _time_step(view, outcome)


def _append_axes(flag: Bool[Array, "*axes"], x: Shaped[Array, "..."]) -> Bool[Array, "..."]:
    """`flag` with axes of length 1 at the end, so that it broadcasts with `x`."""
    return flag.reshape(flag.shape + (1,) * (x.ndim - flag.ndim))


def _time_step(view: View, outcome: StepResult) -> TimeStep:
    return TimeStep(
        obs=view.obs,
        state=view.state,
        action_mask=view.action_mask,
        active=view.active,
        reward=outcome.reward,
        terminated=outcome.terminated,
        truncated=outcome.truncated,
        final_obs=outcome.view.obs,
        final_state=outcome.view.state,
        final_action_mask=outcome.view.action_mask,
        won=outcome.won,
    )


def padded_view(
    spec: EnvSpec,
    obs: list[Float[Array, " _"]],
    state: Float[Array, " S"] | None = None,
    action_mask: Bool[Array, "N A"] | None = None,
    active: Bool[Array, " N"] | None = None,
) -> View:
    """A view from per-agent vectors `[O_i]`. The default global state concatenates all
    observations; the default masks allow every action of the space."""
    for vector, size in zip(obs, spec.obs_sizes, strict=True):
        chex.assert_shape(vector, (size,))
    return View(
        obs=jnp.stack([jnp.pad(o, (0, spec.obs_size - o.shape[0])) for o in obs]),
        state=jnp.concatenate(obs) if state is None else state,
        action_mask=jnp.asarray(spec.action_mask) if action_mask is None else action_mask,
        active=jnp.ones(spec.num_agents, bool) if active is None else active,
    )
