"""A trained policy, taken from its run: acts in a notebook, on one world or thousands."""

from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import Config, build, read_preset
from jmarl.envs.base import Env, EnvSpec
from jmarl.errors import ConfigError, check_choice
from jmarl.learning.rollout import act_all, noise_of
from jmarl.learning.running_statistics import Normalisers
from jmarl.policies.base import Group
from jmarl.runs.directory import check_readable
from jmarl.runs.files import CONFIG, MEMBER
from jmarl.runs.saved_parameters import saved_parameters
from jmarl.types import Perception

Which = Literal["best", "latest"]


class Acted(NamedTuple):
    action: jax.Array  # [N, …] or [E, N, …]
    memory: Any  # to be handed in with the next observation


class TrainedPolicy:
    """Parameters with everything that is needed to use them."""

    def __init__(
        self, config: Config, env: Env, groups: tuple[Group, ...], params: Any, norms: Normalisers
    ) -> None:
        self.config, self.env, self.groups = config, env, groups
        self.params, self.norms = params, Normalisers(obs=norms.obs)
        self._act = jax.jit(self.decide, static_argnames="deterministic")

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def memory(self, num_envs: int) -> tuple[Any, ...]:
        """At the start of episodes; empty for policies without memory."""
        return tuple(group.policy.memory(num_envs) for group in self.groups)

    def act(
        self,
        obs: Any,
        memory: Any = None,
        *,
        key: jax.Array | None = None,
        action_mask: Any = None,
        state: Any = None,
        fresh: Any = None,
        deterministic: bool = True,
    ) -> Acted:
        """Actions for observations `[N, O]` of one world or `[E, N, O]` of many, padded with zeros
        to the widest agent's. `fresh` marks worlds whose episode begins: their memory is void.
        Sampling (`deterministic=False`) needs a key."""
        obs = jnp.asarray(obs, jnp.float32)
        expected = (self.spec.num_agents, self.spec.obs_size)
        if obs.shape[-2:] != expected or obs.ndim not in (2, 3):
            raise ValueError(f"obs has shape {obs.shape}; expected {expected} or (worlds, *that).")
        if key is None:
            if not deterministic:
                raise ValueError("sampling needs a key: act(obs, key=jax.random.key(0), …).")
            key = jax.random.key(0)
        alone = obs.ndim == 2
        many = obs[None] if alone else obs
        worlds = many.shape[0]

        def given(x: Any, default: Any) -> jax.Array:
            if x is None:
                return jnp.broadcast_to(jnp.asarray(default), (worlds, *jnp.shape(default)))
            return jnp.asarray(x)[None] if alone else jnp.asarray(x)

        seen = Perception(
            obs=many,
            state=given(state, jnp.zeros(self.spec.state_size)),
            action_mask=given(action_mask, self.spec.action_mask),
            fresh=given(fresh, 0.0).astype(jnp.float32),
        )
        memory = self.memory(worlds) if memory is None else memory
        action, memory = self._act(
            self.params, self.norms, key, memory, seen, deterministic=deterministic
        )
        return Acted(action[0] if alone else action, memory)

    def decide(
        self,
        params: Any,
        norms: Normalisers,
        key: jax.Array,
        memory: Any,
        seen: Perception,
        deterministic: bool | jax.Array,
    ) -> tuple[jax.Array, Any]:
        """The same, as a pure function of everything."""
        seen = seen._replace(obs=norms.seen(seen.obs))
        noise = noise_of(self.groups, jax.random.split(key, seen.obs.shape[0]), steps=1)
        noise = jax.tree.map(lambda x: x[0], noise)
        memory, _, action = act_all(
            self.spec, self.groups, params, memory, noise, seen, deterministic
        )
        return action, memory


def load_policy(run: str | Path, which: Which = "best") -> TrainedPolicy:
    """From a run directory: the best checkpoint by greedy return, or the latest."""
    path = Path(run)
    if not (path / CONFIG).is_file():
        if members := sorted(found.parent for found in path.glob(f"*/{MEMBER}")):
            raise ConfigError(
                f"{str(path)!r} has {len(members)} runs in it; choose one of them, such as "
                f"{str(members[0])!r}."
            )
        raise ConfigError(f"{str(path)!r} is not a run: it has no config.yaml.")
    check_readable(path)
    check_choice("which", which, get_args(Which))
    config = build(read_preset(path / CONFIG))
    if config.seeds > 1:
        raise ConfigError(
            f"{str(path)!r} has {config.seeds} seeds; choose one of them, such as "
            f"{str(path / f'seed_{config.seed}')!r}."
        )
    trainer, _ = make_trainer(config)
    params, norms = saved_parameters(path, trainer, which)
    return TrainedPolicy(config, trainer.env, trainer.groups, params, norms)
