"""Which distribution continuous actions have, and how wide it starts."""

from jmarl.config.options import NetConfig
from jmarl.envs.base import EnvSpec
from jmarl.envs.spaces import Box
from jmarl.errors import ConfigError
from jmarl.literals import Distribution
from jmarl.policies.base import player_space
from jmarl.policies.continuous_actions import LOG_STD


def action_distribution(net: NetConfig, spec: EnvSpec, agents: tuple[int, ...]) -> Distribution:
    """Of continuous actions: the chosen one, if the world's bounds allow it."""
    fault, bounded = _bounds_fault(spec, agents), net.distribution in ("tanh", "beta")
    if (bounded or net.squash_mean) and fault:
        option = f"net.distribution={net.distribution!r}" if bounded else "net.squash_mean=True"
        raise ConfigError(
            f"{option} needs continuous actions with finite bounds, which all agents of a network "
            f"share, but {fault}."
        )
    return net.distribution or ("gaussian" if fault or net.squash_mean else "tanh")


def start_log_std(net: NetConfig, distribution: Distribution, gaussian: float) -> float:
    """Of the noise; `gaussian` is the default of one."""
    if net.log_std is not None:
        return net.log_std
    return gaussian if distribution == "gaussian" else LOG_STD[distribution]


def _bounds_fault(spec: EnvSpec, agents: tuple[int, ...]) -> str | None:
    """Why one network for these agents cannot choose actions between bounds."""
    shared = player_space(spec, agents)
    if not isinstance(shared, Box):
        return f"{spec.name} has discrete actions"
    for i in agents:
        agent, space = spec.agents[i], spec.action_spaces[i]
        assert isinstance(space, Box)
        if not space.bounded:
            return f"{agent} has low={space.low} and high={space.high}"
        if (space.low, space.high) != (shared.low[: space.size], shared.high[: space.size]):
            return (
                f"{agent} has low={space.low} and high={space.high}, others have "
                f"low={shared.low} and high={shared.high}"
            )
    return None
