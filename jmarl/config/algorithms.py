"""The door through which algorithms come in, and the built-in ones."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from jmarl.config.declaration import Section
from jmarl.config.happo import HappoConfig
from jmarl.config.known_options import declare_own, forget
from jmarl.errors import ConfigError, brief
from jmarl.literals import ActorCritic, Transformer
from jmarl.registry import ALGORITHMS, Algorithm, AlgorithmFacts, Maker, lineage

# Those that have an option in common.
TRANSFORMERS: tuple[str, ...] = get_args(Transformer)
WITH_ATTENTION = ("mat", "mat_dec", "mat_encoder", "mat_decoder")
IN_TURN = ("mat", "mat_decoder", "mat_gru")  # agents decide one after the other
ACTOR_CRITICS: tuple[str, ...] = get_args(ActorCritic)
RECURRENT = ("rmappo", "rippo", "rhappo")

EVAL_EVERY = 25  # updates, where neither the run nor the algorithm says


def register_algorithm(
    name: str,
    *,
    make_policy: Maker | None = None,
    make_learner: Maker | None = None,
    like: str | None = None,
    uses: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    options: type[Section] | None = None,
    section: str | None = None,
    defaults: Mapping[str, Any] | None = None,
    facts: AlgorithmFacts | None = None,
) -> None:
    """Make `--algorithm name` an algorithm.

    `make_policy(config, spec, agents, team)` returns the `Policy` of the agents with these indices;
    `team` is whose observations a central critic reads, None for those of `agents`.
    `make_learner(config, spec, player)` returns the `Learner` of a player. Each may be a string,
    "module:attribute", imported at its first use. What is not given is that of the algorithm
    `like`, whose options, defaults and facts the new one takes, too.

    `uses` names further options (`"ppo.lr"`, or the section `"ppo"`), `without` those of `like`
    that it does not use. `options` are its own: a `Section` whose fields `option` makes, given as
    `--section.field`; `section` is `name` unless another is given. Those that are traced reach the
    learner as `hyper.field`. `defaults` are values of any options, as in a preset.
    """
    _check_name(name, like)
    below = ALGORITHMS.get(like or "")
    ALGORITHMS[name] = Algorithm(
        name=name,
        make_policy=_maker(name, "make_policy", make_policy, below),
        make_learner=_maker(name, "make_learner", make_learner, below),
        like=like,
        uses=tuple(uses),
        without=tuple(without),
        options=_declared(name, section or name, options),
        defaults=dict(defaults or {}),
        facts=facts or (below.facts if below else AlgorithmFacts()),
        built_in=False,
    )


def _maker(name: str, what: str, given: Maker | None, below: Algorithm | None) -> Maker:
    """The one given, or that of the algorithm that it is like."""
    if given is None and below is None:
        raise ConfigError(
            f"algorithm {name!r} has no {what}: give it, or say which algorithm it is like."
        )
    return given or getattr(below, what)


def _declared(
    name: str, section: str, options: type[Section] | None
) -> tuple[str, type[Section]] | None:
    """An algorithm's own options, in place of those that it had before."""
    if (before := ALGORITHMS.get(name)) and before.options:
        forget(before.options[0])
    if options is None:
        return None
    declare_own(name, section, options)
    return section, options


def own_sections(algorithm: str) -> dict[str, type[Any]]:
    """The sections of an algorithm's own options, and of those of what it is like."""
    return dict(each.options for each in lineage(algorithm) if each.options is not None)


def _check_name(name: str, like: str | None) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z]\w*", name):
        raise ConfigError(f"{brief(name)} cannot name an algorithm: use letters, digits and _.")
    if name in ALGORITHMS and ALGORITHMS[name].built_in:
        raise ConfigError(f"algorithm {name!r} is built in; choose another name.")
    if like is not None and (like not in ALGORITHMS or name in [a.name for a in lineage(like)]):
        others = ", ".join(known for known in ALGORITHMS if known != name)
        raise ConfigError(f"algorithm {name!r} cannot be like {brief(like)}, but like {others}.")


# With MAT's defaults, the default run learns to play well in about a minute
# (configs/sweeps/mat_simple_spread.yaml).
MAT: dict[str, Any] = {
    "total_steps": 6_400_000,
    "eval_every": 200,
    "net": {"n_embd": 32},
    "ppo": {"lr": 3e-3, "epochs": 2, "entropy_coef": 0.05},
}
# Continuous PPO's defaults are its seed's, with 16 environments where that has one.
PPO: dict[str, Any] = {
    "env": "gymnax/Pendulum-v1",
    "num_envs": 16,
    "rollout_length": 128,
    "total_steps": 500_000,
    "eval_episodes": 50,
    "net": {
        "activation": "tanh",
        "input_norm": False,
        "layer_norm": False,
        "gain": 2**0.5,
        "distribution": "gaussian",
    },
    "ppo": {
        "lr": 3e-4,
        "gamma": 0.99,
        "epochs": 10,
        "num_minibatches": 32,
        "shuffle": "rows",
        "value_coef": 0.5,
        "entropy_coef": 0.0,
        "max_grad_norm": 0.5,
        "value_loss": "squared",
        "value_norm": "none",
        "advantage_norm": "minibatch",
        "advantage_eps": 1e-8,
        "advantage_ddof": 1,
        "target_kl": 0.02,
        "normalise_obs": True,
        "normalise_reward": True,
    },
}

FACTS: dict[str, AlgorithmFacts] = {
    "mappo": AlgorithmFacts(critic_input="all"),
    "rmappo": AlgorithmFacts(critic_input="all"),
    "ppo": AlgorithmFacts(evaluations=150, log_last_minibatch=True, one_agent=True),
}

for _name in TRANSFORMERS:
    register_algorithm(
        _name,
        make_policy="jmarl.algorithms.mat:make_transformer",
        make_learner="jmarl.algorithms.ppo:make_learner",
        defaults=MAT if _name == "mat" else None,
        facts=AlgorithmFacts(continuous_ratio="component"),
    )
for _name in ACTOR_CRITICS:
    register_algorithm(
        _name,
        make_policy="jmarl.algorithms.actor_critic:make_actor_critic",
        make_learner="jmarl.algorithms.ppo:make_learner",
        defaults=PPO if _name == "ppo" else None,
        facts=FACTS.get(_name),
    )
register_algorithm(
    "happo",
    like="mappo",
    make_policy="jmarl.algorithms.happo:make_policy",
    make_learner="jmarl.algorithms.happo:make_learner",
    # a player is a team, its actors and its critic are clipped apart, and advantages are
    # normalised before minibatches are made
    without=("net.share", "ppo.clip_apart", "ppo.advantage_entries"),
    options=HappoConfig,
    defaults={"ppo": {"ratio": "joint"}},
)
register_algorithm("rhappo", like="happo")
ALGORITHMS.update({name: replace(each, built_in=True) for name, each in ALGORITHMS.items()})
