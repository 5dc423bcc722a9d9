"""Looks at worlds, policies and learners of plug-ins before anything is computed: from shapes
alone."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jmarl.config.train_config import Config
from jmarl.envs.base import EnvSpec
from jmarl.envs.check import shape_faults
from jmarl.envs.mpe.env import Mpe
from jmarl.errors import ConfigError, RunError
from jmarl.learning.ppo_loss import HyperParams
from jmarl.learning.trainer import Trainer
from jmarl.plugins import explained
from jmarl.policies.base import Player, one_decision, player_view
from jmarl.registry import ALGORITHMS, WORLDS, resolve
from jmarl.types import PolicyInput

WORLDS_SEEN = 2


def check_parts(config: Config, trainer: Trainer, hyper: HyperParams) -> None:
    """Refuse what does not fit together, and name whose it is."""
    env, algorithm = trainer.env, ALGORITHMS[config.algorithm]
    world: Any = type(env.scenario) if isinstance(env, Mpe) else WORLDS.get(config.env, type(env))
    if faults := shape_faults(env):
        raise ConfigError(f"world {config.env!r} ({_place(resolve(world))}): {faults[0]}")
    policy, learner = resolve(algorithm.make_policy), resolve(algorithm.make_learner)
    for player in trainer.players:
        _try(config, policy, lambda player=player: _check_policy(env.spec, player))
    before = trainer.shapes
    after, _ = _try(config, learner, lambda: jax.eval_shape(trainer.step_alike, before, hyper))
    _try(config, learner, lambda: _check_same(before, after))


def _try(config: Config, made_by: Callable[..., Any], check: Callable[[], Any]) -> Any:
    try:
        return check()
    except (ConfigError, RunError):
        raise
    except Exception as error:
        if told := explained(error):
            raise ConfigError(told) from error
        first = (str(error).strip().splitlines() or [""])[0]
        raise ConfigError(
            f"algorithm {config.algorithm!r} ({_place(made_by)}): {type(error).__name__}: {first}"
        ) from error


def _check_policy(spec: EnvSpec, player: Player) -> None:
    """The shapes of a decision."""
    decided = jax.eval_shape(lambda: _decision(spec, player))
    rows = (WORLDS_SEEN, len(player.agents))
    for name in ("action", "log_prob", "value"):
        found, axes = getattr(decided, name).shape, 2 if name == "value" else None
        if found[:2] != rows or (axes and len(found) != axes):
            more = "" if axes else ", …"
            raise TypeError(
                f"the policy's {name} has shape {found}, not ({rows[0]}, {rows[1]}{more}) = "
                f"[worlds, agents{more}]."
            )


def _decision(spec: EnvSpec, player: Player) -> Any:
    seen = PolicyInput(
        obs=jnp.zeros((WORLDS_SEEN, spec.num_agents, spec.obs_size)),
        state=jnp.zeros((WORLDS_SEEN, spec.state_size)),
        action_mask=jnp.ones((WORLDS_SEEN, *spec.action_mask.shape), bool),
        episode_start=jnp.zeros(WORLDS_SEEN),
    )
    policy, keys = player.policy, jax.random.split(jax.random.key(0), WORLDS_SEEN)
    params = policy.init(jax.random.key(1))
    noise, memory = one_decision(policy, keys), policy.memory(WORLDS_SEEN)
    return policy.act(params, noise, memory, player_view(spec, player, seen))[1]


def _check_same(before: Any, after: Any) -> None:
    """An update must leave the structure and the shapes of everything as they are."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise TypeError("an update returns parameters or a state of another structure.")
    leaves = zip(*map(jax.tree_util.tree_leaves_with_path, (before, after)), strict=True)
    for (path, old), (_, new) in leaves:
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise TypeError(
                f"an update turns {jax.tree_util.keystr(path)} from {old.dtype}{list(old.shape)} "
                f"into {new.dtype}{list(new.shape)}."
            )


def _place(made_by: Any) -> str:
    """The file and the line of a function or a class."""
    try:
        path, (_, line) = inspect.getsourcefile(made_by), inspect.getsourcelines(made_by)
    except (OSError, TypeError):  # of a notebook, or of what has no source
        return getattr(made_by, "__name__", type(made_by).__name__)
    return f"{path!r}, line {line}"
