"""From one world, as other libraries write them, to a batch: `vmap` inside, resets where due."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from jmarl.envs.base import EnvSpec, keys_per_world
from jmarl.types import TimeStep


class View(NamedTuple):
    """What the agents of one world perceive."""

    obs: jax.Array  # [N, O]
    state: jax.Array  # [S]
    action_mask: jax.Array  # [N, A] bool
    active: jax.Array  # [N] bool


class Outcome(NamedTuple):
    """What one step of one world brought, before any reset."""

    view: View
    reward: jax.Array  # [N]
    terminated: jax.Array  # [N] bool: who is out of the episode, or [] bool for all alike
    truncated: jax.Array  # [] bool
    won: jax.Array | None = None  # [] bool, if and only if `spec.winnable`


class SingleWorld(Protocol):
    """One world that does not reset itself."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: jax.Array) -> tuple[Any, View]: ...

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, Outcome]: ...


@dataclass(frozen=True)
class Batched:
    """An `Env` of E independent copies of one world; each ends and begins anew by itself."""

    world: SingleWorld

    @property
    def spec(self) -> EnvSpec:
        return self.world.spec

    def reset(self, key: jax.Array, num_envs: int) -> tuple[Any, TimeStep]:
        state, view = jax.vmap(self.world.reset)(keys_per_world(key, num_envs))
        never = jnp.zeros(num_envs, bool)
        reward = jnp.zeros((num_envs, self.spec.num_agents), view.obs.dtype)
        won = never if self.spec.winnable else None
        nobody = jnp.zeros_like(view.active)
        return state, _time_step(view, Outcome(view, reward, nobody, never, won))

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        num_envs = action.shape[0]
        derived = jax.vmap(jax.random.fold_in, (0, None))
        keys = keys_per_world(key, num_envs)
        step_keys = derived(keys, 0)
        state, outcome = jax.vmap(self.world.step)(step_keys, state, self.spec.clip(action))
        terminated = _as_wide_as(outcome.terminated, outcome.reward)
        outcome = outcome._replace(terminated=jnp.broadcast_to(terminated, outcome.reward.shape))
        ended = outcome.truncated | outcome.terminated.all(-1)

        def begin_anew() -> tuple[Any, View]:
            fresh = jax.vmap(self.world.reset)(derived(keys, 1))
            return jax.tree.map(
                lambda new, old: jnp.where(_as_wide_as(ended, old), new.astype(old.dtype), old),
                fresh,
                (state, outcome.view),
            )

        # Resetting all worlds costs as much as a step, so only when some world needs it.
        state, view = lax.cond(ended.any(), begin_anew, lambda: (state, outcome.view))
        return state, _time_step(view, outcome)


def _as_wide_as(flag: jax.Array, x: jax.Array) -> jax.Array:
    """`[E, …]` → `[E, …, 1, …]` with as many axes as x."""
    return flag.reshape(flag.shape + (1,) * (x.ndim - flag.ndim))


def _time_step(view: View, outcome: Outcome) -> TimeStep:
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
    obs: list[jax.Array],
    state: jax.Array | None = None,
    action_mask: jax.Array | None = None,
    active: jax.Array | None = None,
) -> View:
    """A view from per-agent vectors `[O_i]`. Without a global state of its own, a world's is all
    observations one after the other; without masks, everything legal is allowed."""
    wide = spec.obs_size
    return View(
        obs=jnp.stack([jnp.pad(o, (0, wide - o.shape[0])) for o in obs]),
        state=jnp.concatenate(obs) if state is None else state,
        action_mask=jnp.asarray(spec.action_mask) if action_mask is None else action_mask,
        active=jnp.ones(spec.num_agents, bool) if active is None else active,
    )
