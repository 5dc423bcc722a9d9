"""What flows between the parts. Axes, in this order everywhere:

`T` time, `E` environment (world), `N` agent, then features: `O` observation, `S` global state,
`A` action entries. `M` members of a population are outermost and appear only there.
"""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

ROUND = 2**30  # updates; a single int32 could not count beyond 2³¹
# Axes of device meshes: over one the members are sharded, over the other their worlds.
MEMBER_AXIS, DATA_AXIS = "member", "data"


Scalar = Float[Array, ""] | float
Params = Any  # a policy's parameters, a tree of its own choice
Memory = Any  # what a policy remembers from step to step; () without memory
Noise = Any  # the random numbers of its decisions
Context = Any  # what else its `evaluate` needs to know of a decision; () or None: nothing
EnvState = Any  # known only to its world
Tree = TypeVar("Tree")  # a tree of arrays whose structure a function keeps


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
    info: dict[str, jax.Array] | None = None  # [E] numbers to report, by name, of what it led to

    @property
    def over(self) -> jax.Array:
        """[E] bool: the world's episode ended. An agent that is out earlier waits for that."""
        return self.truncated | self.terminated.all(-1)


class PolicyInput(NamedTuple):
    """What a policy reads; the leading axes are free."""

    obs: jax.Array  # […, N, O]
    state: jax.Array  # […, S]
    action_mask: jax.Array | None  # […, N, A] bool; None: everything is legal
    episode_start: jax.Array | None = None  # […] float, 1 where an episode begins: memory is void
    team_obs: jax.Array | None = None  # […, M, O] where the team is larger than the group


class PolicyOutput(NamedTuple):
    """A policy's joint action, with what its learner needs to know about it."""

    action: jax.Array  # [E, N], [E, N, K] or [E, N, D]
    log_prob: jax.Array  # [E, N, K] per component of the action
    value: jax.Array  # [E, N] as the network gives it, normalised if values are
    context: Context = None  # [E, …] MAT's agent order; never memory


class Evaluation(NamedTuple):
    """A recorded joint action under the current parameters."""

    log_prob: jax.Array  # […, N, K]
    entropy: jax.Array  # […, N, K]
    value: jax.Array  # […, N]


class Trajectory(NamedTuple):
    """What one player did in a rollout, as its learner receives it. `n` are the player's agents."""

    seen: PolicyInput  # [T, E, …]
    output: PolicyOutput  # [T, E, …]
    next_value: jax.Array  # [T, E, n] value of the state that the step led to, before any reset
    reward: jax.Array  # [T, E, n] raw, shared as the player's `reward` says
    active: jax.Array  # [T, E, n] float: 1 where the agent acted
    valued: jax.Array | None  # [T, E, n] float: 1 where its value is learned; None: where it acted
    terminated: jax.Array  # [T, E, n] bool: the agent has no future, as its `agent_end` says
    truncated: jax.Array  # [T, E] bool
    starts: Memory  # [T/L, E, …] the policy's memory before every L-th step


class PolicyState(NamedTuple):
    """Everything that acting needs: evaluation, export, warm starts."""

    params: Params
    obs_stats: Any = None  # InputMoments; None: what the policy reads is not normalised


class TrainState(struct.PyTreeNode):
    """Everything that training is in the middle of; what is not here does not survive a resume.

    Tuples have one entry per player.
    """

    policies: tuple[PolicyState, ...]
    learners: tuple[Any, ...]  # known only to their learners
    memory: tuple[Memory, ...]
    env: EnvState
    timestep: TimeStep
    episode_return: jax.Array  # [E, N] of the running episodes so far; NaN: not known
    key: jax.Array
    update: jax.Array  # [] int32: updates done, modulo ROUND
    rounds: jax.Array  # [] int32: how many times ROUND updates were done


Metrics = dict[str, jax.Array]
