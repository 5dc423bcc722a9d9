"""Probe worlds: tiny games with known answers, each of which isolates one way to fail.

| name | what happens | what a right learner finds |
|---|---|---|
| `probe/constant` | reward 1, one step | value 1 |
| `probe/observation` | a bit is seen; reward 1 for 1, -1 for 0, one step | value = ±1 |
| `probe/delayed` | two steps, reward 1 after the second | values γ, then 1 |
| `probe/action` | reward 1 for action 1, one step | always 1 |
| `probe/context` | a bit is seen; reward 1 for playing it, one step | action = bit |
| `probe/memory` | a bit is seen, then nothing; reward 1 for playing it then | 1; ½ if forgotten |
| `probe/coordination` | agent 0 alone sees a bit, both must play it | 1; ½ if agents decide apart |
| `probe/death` | three steps of reward 1; agent 1 is out after the first | value 1 for agent 1 |

What is seen is one of two features; nothing is both zero. (One feature alone would not do: a
network that begins with a layer norm is blind to it.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from jmarl.envs.base import EnvSpec, Team
from jmarl.envs.batched import Batched, Outcome, View, padded_view
from jmarl.envs.spaces import Box, Discrete
from jmarl.errors import check_choice, check_known, unknown
from jmarl.types import float_dtype

FEATURES = 2
PROBES = ("constant", "observation", "delayed", "action", "context", "memory")
PROBES += ("coordination", "death")  # of two agents


class ProbeState(struct.PyTreeNode):
    bit: jax.Array  # [] float: 0 or 1, drawn at the start
    step: jax.Array  # [] int32


@dataclass(frozen=True)
class Probe:
    """One probe world. Its episodes truly end, so nothing is bootstrapped."""

    probe: str
    actions: str = "discrete"  # or continuous: one number in [0, 1]
    spec: EnvSpec = field(init=False)

    ACTIONS: ClassVar = ("discrete", "continuous")

    def __post_init__(self) -> None:
        check_choice("actions", self.actions, self.ACTIONS)
        object.__setattr__(self, "spec", self._describe())

    @property
    def length(self) -> int:
        return {"delayed": 2, "memory": 2, "death": 3}.get(self.probe, 1)

    def _describe(self) -> EnvSpec:
        n = 2 if self.probe in ("coordination", "death") else 1
        space = Discrete(2) if self.actions == "discrete" else Box.uniform(0.0, 1.0, 1)
        return EnvSpec(
            name=f"probe/{self.probe}",
            agents=tuple(f"agent_{i}" for i in range(n)),
            teams=(Team("agents", tuple(range(n))),),
            obs_sizes=(FEATURES,) * n,
            action_spaces=(space,) * n,
            state_size=FEATURES * n,
            episode_length=self.length,
            dialect="probe",
        )

    def reset(self, key: jax.Array) -> tuple[ProbeState, View]:
        state = ProbeState(
            jax.random.bernoulli(key).astype(float_dtype()), jnp.zeros((), jnp.int32)
        )
        return state, self._view(state)

    def step(
        self, key: jax.Array, state: ProbeState, action: jax.Array
    ) -> tuple[ProbeState, Outcome]:
        del key  # nothing here is random but the start
        n = self.spec.num_agents
        paid = self._pay(state, action.reshape(n).astype(state.bit.dtype))
        state = state.replace(step=state.step + 1)
        view, over = self._view(state), state.step >= self.length
        reward = jnp.broadcast_to(paid, (n,))
        return state, Outcome(view, reward, over | ~view.active, jnp.zeros((), bool))

    def _view(self, state: ProbeState) -> View:
        nothing = jnp.zeros(FEATURES, state.bit.dtype)
        seen = nothing
        if self.probe == "delayed":
            seen = jax.nn.one_hot(state.step, FEATURES, dtype=nothing.dtype)
        elif self.probe in ("observation", "context", "coordination"):
            seen = jax.nn.one_hot(state.bit.astype(int), FEATURES, dtype=nothing.dtype)
        elif self.probe == "memory":
            shown = jax.nn.one_hot(state.bit.astype(int), FEATURES, dtype=nothing.dtype)
            seen = jnp.where(state.step == 0, shown, nothing)
        if self.probe == "death":  # who is out sees what agent 0 does
            out = jnp.array([False, True]) & (state.step > 0)
            first, second = jnp.eye(FEATURES, dtype=nothing.dtype)
            return padded_view(self.spec, [first, jnp.where(out[1], first, second)], active=~out)
        return padded_view(self.spec, [seen] + [nothing] * (self.spec.num_agents - 1))

    def _pay(self, state: ProbeState, action: jax.Array) -> jax.Array:
        """Closeness 1 - (a - wanted)² is right or wrong for discrete actions, smooth for others."""
        if self.probe == "observation":
            return 2 * state.bit - 1
        if self.probe == "delayed":
            return state.step.astype(action.dtype)
        if self.probe in ("constant", "death"):
            return jnp.ones_like(state.bit)
        wanted = 1.0 if self.probe == "action" else state.bit
        right = jnp.prod(1 - (action - wanted) ** 2)
        return right * state.step.astype(right.dtype) if self.probe == "memory" else right


def make(name: str, probe: str, options: Mapping[str, Any]) -> Batched:
    if probe not in PROBES:
        raise unknown("environment", name, [f"probe/{known}" for known in PROBES])
    check_known(f"option of {name}", options, ["actions"])
    return Batched(Probe(probe, **options))
