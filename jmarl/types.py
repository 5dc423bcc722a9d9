"""What flows between the parts. Axes, in this order everywhere:

`T` time, `E` environment (world), `N` agent, then features: `O` observation, `S` global state,
`A` action entries. `M` members of a population are outermost and appear only there.
"""

from typing import NamedTuple

import jax


class TimeStep(NamedTuple):
    """What the agents perceive after a step; where an episode ended, the first view of the next."""

    obs: jax.Array  # [E, N, O], zero where `spec.obs_mask` is False
    state: jax.Array  # [E, S] the global state, for central critics
    action_mask: jax.Array  # [E, N, A] bool: what may be done now
    active: jax.Array  # [E, N] bool: the agent acts (False once it is out of a running episode)
    reward: jax.Array  # [E, N] of the step just taken
    terminated: jax.Array  # [E] bool: the episode truly ended; there is no future to bootstrap
    truncated: jax.Array  # [E] bool: a time limit cut it; the future goes on unseen
    final_obs: jax.Array  # [E, N, O] what the step led to, before any reset
    final_state: jax.Array  # [E, S] likewise
