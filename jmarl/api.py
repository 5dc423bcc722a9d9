"""The public functions of `jmarl`, which `jmarl/__init__.py` imports on first use."""

from typing import Any

from jmarl.config.train_config import Config, build, merged
from jmarl.envs.base import make
from jmarl.errors import ConfigError
from jmarl.evaluation.trained_policy import load_policy
from jmarl.runs import in_memory

__all__ = ["load_policy", "make", "train"]


def train(config: Config | dict[str, Any] | None = None, **options: Any) -> Any:
    """Train in memory and return the final state, metrics and evaluations.

    Writes nothing and leaves jax's configuration alone. `options` override those of `config`;
    `quiet=True` prints nothing."""
    for name in ("run_dir", "resume", "wandb"):
        if options.get(name):
            raise ConfigError(
                f"{name}={str(options[name])!r} is an option of `python -m jmarl.train`; "
                "jmarl.train() writes nothing."
            )
    if isinstance(config, Config) and not options:
        return in_memory.train(config)
    given = config.model_dump() if isinstance(config, Config) else dict(config or {})
    return in_memory.train(build(merged(given, options)))
