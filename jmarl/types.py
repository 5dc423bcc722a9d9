"""What flows between the parts. Axes, in this order everywhere:

`T` time, `E` environment (world), `N` agent, then features: `O` observation, `S` global state,
`A` action entries. `M` members of a population are outermost and appear only there.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

ROUND = 2**30  # updates; a single int32 could not count beyond 2³¹
MEMBER, DATA = "member", "data"  # axes of device meshes: who shares out members, who worlds


def float_dtype() -> Any:
    """float32, or float64 under `jax_enable_x64`."""
    return jnp.zeros(()).dtype


class TimeStep(NamedTuple):
    """What the agents perceive after a step; where an episode ended, the first view of the next."""

    obs: jax.Array  # [E, N, O], zero where `spec.obs_mask` is False
    state: jax.Array  # [E, S] the global state, for central critics
    action_mask: jax.Array  # [E, N, A] bool: what may be done now
    active: jax.Array  # [E, N] bool: the agent acts (False once it is out of a running episode)
    reward: jax.Array  # [E, N] of the step just taken
    terminated: jax.Array  # [E, N] bool: the agent's episode truly ended; it has no future
    truncated: jax.Array  # [E] bool: a time limit cut it; the future goes on unseen
    final_obs: jax.Array  # [E, N, O] what the step led to, before any reset
    final_state: jax.Array  # [E, S] likewise
    final_action_mask: jax.Array  # [E, N, A] likewise
    won: jax.Array | None = None  # [E] bool: it ended in victory; None where there is none

    @property
    def over(self) -> jax.Array:
        """[E] bool: the world's episode ended. An agent that is out earlier waits for that."""
        return self.truncated | self.terminated.all(-1)


class Perception(NamedTuple):
    """What a policy decides on; the leading axes are free."""

    obs: jax.Array  # […, N, O]
    state: jax.Array  # […, S]
    action_mask: jax.Array | None  # […, N, A] bool; None: everything is legal
    fresh: jax.Array | None = None  # […] float, 1 where an episode begins: memory is void
    team_obs: jax.Array | None = None  # […, M, O] where the team is larger than the group


class Decision(NamedTuple):
    """What a policy did, and what it thought of it."""

    action: jax.Array  # [E, N], [E, N, K] or [E, N, D]
    log_prob: jax.Array  # [E, N, K] per component of the action
    value: jax.Array  # [E, N] as the network gives it, normalised if values are
    context: Any = None  # [E, …] what else the policy needs to evaluate the action again


class Evaluation(NamedTuple):
    """A recorded joint action under the parameters of now."""

    log_prob: jax.Array  # […, N, K]
    entropy: jax.Array  # […, N, K]
    value: jax.Array  # […, N]


class Transition(NamedTuple):
    """One step of all worlds as a learner needs it; stacked over time, `[T, E, …]`."""

    perception: Perception
    decision: Decision
    active: jax.Array  # [E, N] float: 1 where the agent acted
    valued: jax.Array | None  # [E, N] float: 1 where its value is learned; None: where it acted
    reward: jax.Array  # [E, N] as it is learned from, normalised if rewards are
    paid: jax.Array  # [E, N] as the world gave it
    terminated: jax.Array  # [E, N] bool
    truncated: jax.Array  # [E] bool
    final_value: jax.Array  # [E, N] of the final observation where truncated, else anything


class Batch(NamedTuple):
    """Rows to learn from, `[T, E, N, …]` or `[B, N, …]`."""

    perception: Perception
    context: Any  # as in `Decision`
    action: jax.Array
    log_prob: jax.Array  # […, N, K]
    value: jax.Array  # […, N] as predicted when playing
    advantage: jax.Array  # […, N]
    target: jax.Array  # […, N] return, in the rewards' own units
    active: jax.Array  # […, N]
    valued: jax.Array | None = None  # […, N]; None: `active`


class State(struct.PyTreeNode):
    """Everything that training is in the middle of; what is not here does not survive a resume.

    Groups learn apart: parameters, optimiser and value statistics are tuples, one entry each.
    """

    params: tuple[Any, ...]
    opt_state: tuple[Any, ...]
    value_norm: tuple[Any, ...]
    memory: tuple[Any, ...]
    env: Any
    timestep: TimeStep
    normalisers: Any  # of observations and rewards
    key: jax.Array
    update: jax.Array  # [] int32: updates done, modulo ROUND
    rounds: jax.Array  # [] int32: how many times ROUND updates were done


Metrics = dict[str, jax.Array]
