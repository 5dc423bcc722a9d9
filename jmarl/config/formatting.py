"""Options and their values, as one reads them."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any


def formatted(settings: Mapping[str, Any]) -> str:
    """Settings as one reads them: `ppo.lr=0.0003, ppo.gamma=0.9`."""
    return ", ".join(f"{name}={shown(value)}" for name, value in settings.items())


def command_line(*words: Any) -> str:
    """Words that can be copied into a shell, whatever characters a path has."""
    return shlex.join(map(str, words))


def shown(value: Any) -> str:
    """A value for tables and pictures."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple | list):
        return "×".join(str(part) for part in value) or "none"
    return str(value)


def listed(names: Iterable[str]) -> str:
    """`mat, mappo and ppo`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
