"""Returns of the episodes that end in a rollout, whichever rollout they began in; and the numbers
that worlds report in every step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jmarl.envs.base import EnvSpec
from jmarl.policies.base import pick
from jmarl.types import Metrics, TimeStep

NAME = "train/episode_return"


class EpisodeReturns(NamedTuple):
    """Sums of rewards by world and agent. NaN: not known, as in a run of an earlier format, which
    stored no sums; such an episode is left out."""

    running: jax.Array  # [E, N] of the running episodes
    ended: jax.Array  # [E, N] Σ over the episodes that ended in this rollout
    episodes: jax.Array  # [E] how many these are
    info: dict[str, jax.Array] | None = None  # [E] Σ over the rollout of `TimeStep.info`

    @classmethod
    def at_start(
        cls, running: Float[Array, "E N"], info: dict[str, jax.Array] | None = None
    ) -> "EpisodeReturns":
        """Of a rollout. `info`: of any time step."""
        nothing = jax.tree.map(jnp.zeros_like, info)
        return cls(running, jnp.zeros_like(running), jnp.zeros_like(running[:, 0]), nothing)

    def after(self, timestep: TimeStep) -> "EpisodeReturns":
        total, over = self.running + timestep.reward, timestep.over
        known = over & jnp.isfinite(total).all(-1)
        return EpisodeReturns(
            running=jnp.where(over[:, None], 0.0, total),
            ended=self.ended + jnp.where(known[:, None], total, 0.0),
            episodes=self.episodes + known,
            info=jax.tree.map(jnp.add, self.info, timestep.info),
        )

    def totals(self) -> tuple[Float[Array, " N"], Float[Array, ""]]:
        """Σ over worlds of returns, and the number of episodes."""
        return self.ended.sum(0), self.episodes.sum()

    def info_totals(self, steps: int) -> dict[str, tuple[jax.Array, jax.Array]]:
        """By name of metric: how many steps all worlds took together, and Σ over them."""
        count = jnp.full((), steps * len(self.episodes), self.episodes.dtype)
        return {f"train/info/{name}": (count, x.sum()) for name, x in (self.info or {}).items()}


def mean_returns(spec: EnvSpec, ended: Float[Array, " N"], episodes: Float[Array, ""]) -> Metrics:
    """Over episodes, of the sum over agents; of opposing teams each for itself. NaN if no episode
    has ended."""
    mean = ended / episodes
    if spec.cooperative:
        return {NAME: mean.sum()}
    return {f"{NAME}/{team.name}": mean[pick(team.agents)].sum() for team in spec.teams}
