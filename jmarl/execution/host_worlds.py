"""What worlds that Python steps cannot do: a callback steps those of one program, on one device."""

from jmarl.config.train_config import Config
from jmarl.errors import ConfigError


def check_on_host(config: Config, members: int) -> None:
    """Refuse what would need several programs or devices."""
    why = f"Python steps the worlds of {config.env}"
    if members > 1:
        raise ConfigError(
            f"{members} members cannot train together, because {why}: train one seed at a time."
        )
    if config.hosts.several:
        processes = config.hosts.processes
        count = "several processes" if processes is None else f"hosts.processes={processes}"
        raise ConfigError(f"{count} cannot share worlds, because {why}: train in one process.")
    if config.devices not in (None, 1):
        raise ConfigError(
            f"devices={config.devices} cannot share worlds, because {why}: choose devices=1."
        )
