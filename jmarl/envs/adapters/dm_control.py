"""Tasks of the DM Control Suite as `dm_control/<domain>/<task>`: compiled ones of MuJoCo Playground
where it is installed and has the task, else the suite's own through shimmy, which Python steps."""

import importlib.util
import re
import warnings
from collections.abc import Mapping
from typing import Any

from jmarl.envs.adapters import brax
from jmarl.envs.base import Env
from jmarl.errors import ConfigError, check_int, check_known

EPISODE_LENGTH = 1000  # of all tasks; only those of `lqr` have no limit of their own
SHIMMY = ("shimmy", "dm_control")  # packages that play the suite itself


def playground_name(name: str, task: str) -> str:
    """Playground's name of a task: `cartpole/balance` → `CartpoleBalance`."""
    parts = task.split("/")
    if len(parts) != 2 or not all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", part) for part in parts):
        raise ConfigError(
            f"environment {name!r} is malformed: write dm_control/DOMAIN/TASK, such as "
            "dm_control/cartpole/balance."
        )
    exceptions = {"ball_in_cup/catch": "BallInCup", "point_mass/easy": "PointMass"}
    return exceptions.get(task, "".join(word.capitalize() for word in re.split("[/_]", task)))


def make(name: str, task: str, options: Mapping[str, Any]) -> Env:
    """Option: `episode_length`; of worlds that Python steps also `processes`."""
    native = playground_name(name, task)
    in_playground = _installed(brax.MODULES["playground"]) and native in brax.playground_worlds()
    if in_playground:
        return brax.make(f"playground/{native}", native, options)
    if all(map(_installed, SHIMMY)):
        return _through_shimmy(name, task, options)
    if _installed(brax.MODULES["playground"]):
        raise ConfigError(
            f"{name} is not in MuJoCo Playground and needs the 'dm_control' extra, which is not "
            'installed: pip install "jmarl[dm_control]".'
        )
    raise ConfigError(missing_extras(name))


def missing_extras(name: str) -> str | None:
    """Which extras play a task; None: one of them is there."""
    if _installed(brax.MODULES["playground"]) or all(map(_installed, SHIMMY)):
        return None
    return (
        f"{name} needs the 'playground' extra, which compiles most of these worlds, or the "
        "'dm_control' extra, which has all and steps them in Python; neither is installed: "
        'pip install "jmarl[playground]" or "jmarl[dm_control]".'
    )


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _through_shimmy(name: str, task: str, options: Mapping[str, Any]) -> Env:
    from jmarl.envs.adapters import gymnasium  # a list of worlds does without

    check_known(f"option of {name}", options, ["episode_length", "processes"])
    length = options.get("episode_length", EPISODE_LENGTH)
    check_int("episode_length", length, low=1)
    given = {key: value for key, value in options.items() if key == "processes"}
    # its module comes with the id, because processes of their own have to import it, too
    world = f"shimmy:dm_control/{task.replace('/', '-')}-v0"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what cannot be drawn without a display
        return gymnasium.make(name, world, {"max_episode_steps": length, **given})
