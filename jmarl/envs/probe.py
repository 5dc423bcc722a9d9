"""Probe worlds: tiny games with known answers; each isolates one way in which a learner can fail.

| name | what happens | what a correct learner finds |
|---|---|---|
| `probe/constant` | reward 1, one step | value 1 |
| `probe/observation` | agents observe a bit; reward 1 for 1, -1 for 0, one step | value = ±1 |
| `probe/delayed` | two steps, reward 1 after the second | values γ, then 1 |
| `probe/action` | reward 1 for action 1, one step | always 1 |
| `probe/context` | agents observe a bit; reward 1 for playing it, one step | action = bit |
| `probe/memory` | a bit, then nothing; reward 1 for playing the bit in step 2 | 1; ½ without |
| `probe/coordination` | only agent 0 observes a bit, both must play it | 1; ½ if independent |
| `probe/death` | three steps of reward 1; agent 1 terminates after one | value 1 for agent 1 |

An observation is a one-hot vector of two features, or zeros for no information. (A single feature
would not do: a network that begins with a layer norm cannot read it.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int, Key, Num

from jmarl.envs.base import EnvSpec, Team
from jmarl.envs.batched import Batched, StepResult, View, padded_view
from jmarl.envs.spaces import Box, Discrete
from jmarl.errors import check_choice, check_known, unknown
from jmarl.types import float_dtype

FEATURES = 2
PROBES = ("constant", "observation", "delayed", "action", "context", "memory")
PROBES += ("coordination", "death")  # of two agents


class ProbeState(struct.PyTreeNode):
    bit: Float[Array, ""]  # 0 or 1, drawn at the start
    step: Int[Array, ""]


@dataclass(frozen=True)
class Probe:
    """One probe world. Its episodes terminate, so returns do not bootstrap."""

    probe: str
    actions: str = "discrete"  # "continuous": one number in [0, 1]
    spec: EnvSpec = field(init=False)

    ACTIONS: ClassVar = ("discrete", "continuous")

    def __post_init__(self) -> None:
        check_choice("actions", self.actions, self.ACTIONS)
        object.__setattr__(self, "spec", self._make_spec())

    @property
    def length(self) -> int:
        return {"delayed": 2, "memory": 2, "death": 3}.get(self.probe, 1)

    def _make_spec(self) -> EnvSpec:
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

    def reset(self, key: Key[Array, ""]) -> tuple[ProbeState, View]:
        state = ProbeState(
            jax.random.bernoulli(key).astype(float_dtype()), jnp.zeros((), jnp.int32)
        )
        return state, self._view(state)

    def step(
        self, key: Key[Array, ""], state: ProbeState, action: Num[Array, " N *entries"]
    ) -> tuple[ProbeState, StepResult]:
        del key  # only the reset is random
        n = self.spec.num_agents
        reward = self._reward(state, action.reshape(n).astype(state.bit.dtype))
        state = state.replace(step=state.step + 1)
        view, over = self._view(state), state.step >= self.length
        terminated = over | ~view.active
        return state, StepResult(
            view, jnp.broadcast_to(reward, (n,)), terminated, jnp.zeros((), bool)
        )

    def _view(self, state: ProbeState) -> View:
        nothing = jnp.zeros(FEATURES, state.bit.dtype)
        obs = nothing
        if self.probe == "delayed":
            obs = jax.nn.one_hot(state.step, FEATURES, dtype=nothing.dtype)
        elif self.probe in ("observation", "context", "coordination"):
            obs = jax.nn.one_hot(state.bit.astype(int), FEATURES, dtype=nothing.dtype)
        elif self.probe == "memory":
            bit = jax.nn.one_hot(state.bit.astype(int), FEATURES, dtype=nothing.dtype)
            obs = jnp.where(state.step == 0, bit, nothing)
        if self.probe == "death":  # after it terminates, agent 1 observes what agent 0 does
            out = jnp.array([False, True]) & (state.step > 0)
            first, second = jnp.eye(FEATURES, dtype=nothing.dtype)
            return padded_view(self.spec, [first, jnp.where(out[1], first, second)], active=~out)
        return padded_view(self.spec, [obs] + [nothing] * (self.spec.num_agents - 1))

    def _reward(self, state: ProbeState, action: Float[Array, " N"]) -> Float[Array, ""]:
        """1 - (a - target)² is 1 or 0 for discrete actions and smooth for continuous ones."""
        if self.probe == "observation":
            return 2 * state.bit - 1
        if self.probe == "delayed":
            return state.step.astype(action.dtype)
        if self.probe in ("constant", "death"):
            return jnp.ones_like(state.bit)
        target = 1.0 if self.probe == "action" else state.bit
        correct = jnp.prod(1 - (action - target) ** 2)
        return correct * state.step.astype(correct.dtype) if self.probe == "memory" else correct


def make(name: str, probe: str, options: Mapping[str, Any]) -> Batched:
    if probe not in PROBES:
        raise unknown("environment", name, [f"probe/{known}" for known in PROBES])
    check_known(f"option of {name}", options, ["actions"])
    return Batched(Probe(probe, **options))
