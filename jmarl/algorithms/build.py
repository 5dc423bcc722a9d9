"""From a configuration to players, learners and their trainer, by what is registered as the
algorithm."""

from jmarl.algorithms.actor_critic import critic_input
from jmarl.algorithms.hyper import make_hyper
from jmarl.algorithms.ppo import agent_end
from jmarl.config.train_config import Config
from jmarl.envs.base import Env, EnvSpec, Team, make
from jmarl.errors import ConfigError
from jmarl.learning.ppo_loss import HyperParams
from jmarl.learning.trainer import Trainer
from jmarl.policies.base import Player, Policy
from jmarl.registry import ALGORITHMS, resolve


def make_trainer(config: Config) -> tuple[Trainer, HyperParams]:
    """The static program and its traced numbers, which all learners share."""
    env = make_env(config)
    if config.facts.one_agent and env.spec.num_agents > 1:
        raise ConfigError(
            f"algorithm={config.algorithm!r} is for worlds of one agent; {config.env} has "
            f"{env.spec.num_agents}: choose ippo, mappo or mat."
        )
    players = make_players(config, env.spec)
    make_learner = resolve(ALGORITHMS[config.algorithm].make_learner)
    trainer = Trainer(
        env=env,
        players=players,
        learners=tuple(make_learner(config, env.spec, player) for player in players),
        num_envs=config.num_envs,
        rollout_length=config.rollout_length,
        total_updates=config.num_updates,
        skip_nonfinite=config.on_nonfinite == "skip",
    )
    return trainer, make_hyper(config)


def make_env(config: Config) -> Env:
    chosen = {} if config.actions is None else {"actions": config.actions}
    return make(config.env, **config.env_options, **chosen)


def make_players(config: Config, spec: EnvSpec) -> tuple[Player, ...]:
    """A policy and a learner for every team, for every agent, or one for all agents."""
    if config.net.share == "none":
        return tuple(
            _alone(config, spec, team, agent) for team in spec.teams for agent in team.agents
        )
    everybody = (Team("all", tuple(range(spec.num_agents))),)
    teams = everybody if config.net.share == "all" else spec.teams
    return tuple(
        _player(config, team.name, team.agents, _policy(config, spec, team.agents))
        for team in teams
    )


def _alone(config: Config, spec: EnvSpec, team: Team, agent: int) -> Player:
    """An agent that learns by itself. A central critic still reads the observations of its team."""
    joint = critic_input(config) in ("all", "all_and_state")
    others = team.agents if joint else None
    policy = _policy(config, spec, (agent,), others)
    return _player(config, spec.agents[agent], (agent,), policy, others)


def _policy(
    config: Config, spec: EnvSpec, agents: tuple[int, ...], team: tuple[int, ...] | None = None
) -> Policy:
    return resolve(ALGORITHMS[config.algorithm].make_policy)(config, spec, agents, team)


def _player(
    config: Config,
    name: str,
    agents: tuple[int, ...],
    policy: Policy,
    team: tuple[int, ...] | None = None,
) -> Player:
    ppo = config.ppo
    return Player(name, agents, policy, ppo.reward, agent_end(ppo), team, ppo.normalise_obs)
