"""Loads a trained policy from its run; it acts in one world or in thousands."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args

import jax
import jax.numpy as jnp
import numpy as np

from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import Config
from jmarl.envs.base import Env, EnvSpec
from jmarl.envs.by_agent import joint_mask, joint_obs, own_action
from jmarl.errors import ConfigError, brief, check_choice
from jmarl.learning.acting import act, all_noise, init_memory, normalised
from jmarl.literals import Which
from jmarl.policies.base import Player, player_view
from jmarl.runs.saved_parameters import saved_config, saved_parameters
from jmarl.types import PolicyInput, PolicyState


class PolicyStep(NamedTuple):
    action: Any  # [N, …] or [E, N, …]; by agent if observations were
    memory: Any  # pass it with the next observation


class TrainedPolicy:
    """Trained parameters with everything that acting requires."""

    def __init__(
        self,
        config: Config,
        env: Env,
        players: tuple[Player, ...],
        policies: tuple[PolicyState, ...],
    ) -> None:
        self.config, self.env, self.players, self.policies = config, env, players, policies
        self._act = jax.jit(self.decide, static_argnames="deterministic")

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def memory(self, num_envs: int) -> tuple[Any, ...]:
        """The memory at the start of episodes; empty for policies without memory."""
        return init_memory(self.players, num_envs)

    def act(
        self,
        obs: Any,
        memory: Any = None,
        *,
        key: jax.Array | None = None,
        action_mask: Any = None,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> PolicyStep:
        """Actions for observations `[N, O]` of one world or `[E, N, O]` of many, padded with zeros
        to the largest observation. A dictionary by agent, `[O_i]` or `[E, O_i]` of those who act,
        gives a dictionary of their actions; its masks are by agent, too. `episode_start` marks
        worlds whose episode begins: their memory is reset. Sampling (`deterministic=False`) needs
        a key."""
        if isinstance(obs, Mapping):
            masks = None if action_mask is None else joint_mask(self.spec, action_mask)
            step = self.act(
                joint_obs(self.spec, {agent: np.asarray(own) for agent, own in obs.items()}),
                memory,
                key=key,
                action_mask=masks,
                state=state,
                episode_start=episode_start,
                deterministic=deterministic,
            )
            # copies: mpe2 writes into the actions that it is given
            actions = own_action(self.spec, np.array(step.action))
            return PolicyStep({agent: actions[agent] for agent in obs}, step.memory)
        obs = jnp.asarray(obs, jnp.float32)
        expected = (self.spec.num_agents, self.spec.obs_size)
        if obs.shape[-2:] != expected or obs.ndim not in (2, 3):
            raise ValueError(f"obs has shape {obs.shape}; expected {expected} or (worlds, *that).")
        if key is None:
            if not deterministic:
                raise ValueError("sampling needs a key: act(obs, key=jax.random.key(0), …).")
            key = jax.random.key(0)
        inputs = self._batched(obs, action_mask, state, episode_start)
        memory = self.memory(inputs.obs.shape[0]) if memory is None else memory
        action, memory = self._act(self.policies, key, memory, inputs, deterministic=deterministic)
        return PolicyStep(action[0] if obs.ndim == 2 else action, memory)

    def _batched(
        self, obs: jax.Array, action_mask: Any, state: Any, episode_start: Any
    ) -> PolicyInput:
        """Inputs of `[E, …]` worlds, with defaults for what was not given. One world gets the
        axis."""
        unbatched = obs.ndim == 2
        batch = obs[None] if unbatched else obs
        worlds = batch.shape[0]

        def batched(x: Any, default: Any) -> jax.Array:
            if x is None:
                return jnp.broadcast_to(jnp.asarray(default), (worlds, *jnp.shape(default)))
            return jnp.asarray(x)[None] if unbatched else jnp.asarray(x)

        return PolicyInput(
            obs=batch,
            state=batched(state, jnp.zeros(self.spec.state_size)),
            action_mask=batched(action_mask, self.spec.action_mask),
            episode_start=batched(episode_start, 0.0).astype(jnp.float32),
        )

    def decide(
        self,
        policies: tuple[PolicyState, ...],
        key: jax.Array,
        memory: Any,
        inputs: PolicyInput,
        deterministic: bool | jax.Array,
    ) -> tuple[jax.Array, Any]:
        """`act` as a pure function of policies, key, memory and all agents' raw inputs."""
        noise = all_noise(self.players, jax.random.split(key, inputs.obs.shape[0]), steps=1)
        noise = jax.tree.map(lambda x: x[0], noise)
        views = tuple(
            normalised(policy, player_view(self.spec, player, inputs))
            for player, policy in zip(self.players, policies, strict=True)
        )
        memory, _, action = act(
            self.spec, self.players, policies, memory, noise, views, deterministic
        )
        return action, memory


class HasPolicy(Protocol):
    """What `jmarl.train` returns."""

    def trained(self, which: Which) -> TrainedPolicy: ...


def load_policy(
    run: str | Path | HasPolicy | TrainedPolicy, which: Which = "best"
) -> TrainedPolicy:
    """The best policy of a run by greedy return, or the latest. `run`: its directory, or what
    `jmarl.train` returned; a policy is returned as it is."""
    check_choice("which", which, get_args(Which))
    if isinstance(run, TrainedPolicy):
        return run
    if isinstance(run, str | Path):
        return _load(Path(run), which)
    if not hasattr(run, "trained"):
        raise ConfigError(
            f"{brief(run)} is neither the directory of a run nor what jmarl.train returned."
        )
    return run.trained(which)


def _load(path: Path, which: Which) -> TrainedPolicy:
    config = saved_config(path)
    trainer, hyper = make_trainer(config)
    policies = saved_parameters(path, trainer, hyper, which)
    return TrainedPolicy(config, trainer.env, trainer.players, policies)
