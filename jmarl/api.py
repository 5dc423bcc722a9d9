"""The public functions of `jmarl`, which `jmarl/__init__.py` imports on first use. They have the
bodies of the commands: both call the same functions with the same options."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jmarl.config.train_config import Config, applicable, build, merged, read_preset
from jmarl.envs.base import make
from jmarl.envs.listing import list_worlds
from jmarl.errors import ConfigError, validated
from jmarl.evaluation.exported_policy import load_exported
from jmarl.evaluation.outcome import Outcome
from jmarl.evaluation.trained_policy import TrainedPolicy, load_policy
from jmarl.execution.train_function import Result, TrainFunction
from jmarl.learning.base import Learner
from jmarl.learning.ppo import Ppo
from jmarl.literals import ReferenceName, Which
from jmarl.runs.callbacks import Callback, Callbacks
from jmarl.runs.files import is_run
from jmarl.views.make import to_gymnasium, to_jaxmarl, to_pettingzoo

if TYPE_CHECKING:
    from jmarl.commands.sweep import Searched

__all__ = [
    "Callback",
    "Outcome",
    "Ppo",
    "Result",
    "TrainFunction",
    "TrainedPolicy",
    "evaluate",
    "export",
    "list_worlds",
    "load_exported",
    "load_policy",
    "make",
    "make_train",
    "render",
    "report",
    "sweep",
    "to_gymnasium",
    "to_jaxmarl",
    "to_pettingzoo",
    "train",
]

Options = Config | Mapping[str, Any] | str | Path  # or the file of a preset
Run = str | Path | Outcome | TrainedPolicy


def make_train(
    config: Options | None = None,
    learner: Callable[[Any], Learner[Any, Any]] | None = None,
    **options: Any,
) -> TrainFunction:
    """Make `train(key, hyper=None) -> Result(state, metrics)`: a whole run as one pure function,
    for `jax.jit` and `jax.vmap`.

    `learner` is called with the learner that the configuration describes (a `Ppo`) and returns the
    one to train with, such as a subclass with a loss of its own. Call `make_train` before jax
    creates its devices, that is, before the first array: it then splits a CPU into one device per
    core, over which vmapped runs are shared out."""
    from jmarl.execution import train_function

    return train_function.make_train(configured(config, options), learner)


def train(
    config: Options | None = None,
    run_dir: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    **options: Any,
) -> Outcome:
    """Train to the end of the budget, and return the policy and all figures.

    `config` is a `Config`, a mapping of options or the file of a preset; `options` override it.
    Without `run_dir` nothing is written. With `run_dir` (a new directory) or `resume` (an old one)
    the run is on disk, as `python -m jmarl.train` writes it. `quiet=True` prints nothing. jax's
    configuration stays as it is."""
    if run_dir is not None:
        options["run_dir"] = run_dir
    each = Callbacks(callbacks)
    if options.get("resume") is not None:
        from jmarl.runs.single import resumed

        if config is not None or run_dir is not None:
            raise ConfigError("resume goes on with its own configuration, in its own directory.")
        outcome = _train_on_disk(resumed(Path(options.pop("resume")), options), each)
    elif (chosen := configured(config, options)).run_dir or chosen.resume:
        outcome = _train_on_disk(chosen, each)
    else:
        outcome = _train_in_memory(chosen, each)
    each.end(outcome)
    return outcome


def _train_in_memory(config: Config, callbacks: Callbacks) -> Outcome:
    from jmarl.runs import in_memory

    if config.wandb:
        raise ConfigError("wandb=True needs a directory for the run: give run_dir.")
    trained = in_memory.train(config, callbacks)
    return Outcome(config, *trained)


def _train_on_disk(config: Config, callbacks: Callbacks) -> Outcome:
    from jmarl.execution.cpu_devices import make_devices
    from jmarl.replays.best_gif import draw_best
    from jmarl.runs.single import run
    from jmarl.runs.terminal import make_console
    from jmarl.runs.user_dirs import jax_cache_restored

    make_devices([(config, config.seeds)])
    with jax_cache_restored():
        outcome, path, population = run(config, make_console(sys.stdout), draw_best, callbacks)
    return Outcome(config, outcome, population, path)


def configured(config: Options | None, options: dict[str, Any]) -> Config:
    """The checked configuration, with options over it."""
    if isinstance(config, str | Path):
        config = read_preset(Path(config))
    if not isinstance(config, Config):
        return build(merged(dict(config or {}), options))
    config.check_applicable()
    if not options:
        config.check()
        return config
    algorithm = options.get("algorithm", config.algorithm)  # of the rest, what it uses
    given = applicable({**config.model_dump(), "algorithm": algorithm})
    return build(merged(given, options))


def evaluate(
    policy_or_run: Run,
    episodes: int = 1024,
    world: Literal["native", "mpe2"] = "native",
    *,
    which: Which = "best",
    seed: int = 1,
    env_options: Mapping[str, int | float | bool | str] | None = None,
) -> dict[str, dict[str, float]]:
    """Score a policy, in its own world or in Farama's mpe2: `["greedy"]["return_mean"]`, and the
    same for `"sampled"`. `env_options` differ from those of training."""
    from jmarl.commands import evaluate as command

    given = {"which": which, "world": world, "episodes": episodes, "seed": seed}
    options = validated(command.Options, given | {"env_options": dict(env_options or {})})
    return command.evaluate(load_policy(policy_or_run, which), options)


def render(
    policy_or_run: Run,
    episodes: int = 6,
    *,
    which: Which = "best",
    seed: int = 1,
    sampled: bool = False,
    gif: str | Path | None = "RUN/replay.gif",
    html: str | Path | None = "RUN/replay.html",
    grid: bool = False,
    fps: int = 8,
) -> list[Path]:
    """Show a policy at play, as a GIF and as a page for a browser; return the files. RUN is the
    run's directory, or the current one for a policy in memory. None: do not write this one."""
    from jmarl.commands import render as command

    given = {"which": which, "episodes": episodes, "seed": seed, "sampled": sampled, "gif": gif}
    options = validated(command.Options, given | {"html": html, "grid": grid, "fps": fps})
    return command.render(*_place_and_policy(policy_or_run, options))


def export(
    policy_or_run: Run,
    out: str | Path | None = None,
    *,
    which: Which = "best",
    format: Literal["jax", "torch"] = "jax",
    reference: ReferenceName | None = None,
) -> Path:
    """Write a policy as a file that acts with jax alone, for `load_exported`. Without `out` it is
    `policy.zip` in the run's directory, or in the current one for a policy in memory. With
    `format="torch"`, write a run's state_dicts with the names of a reference into a directory."""
    from jmarl.commands import export as command

    given = {"which": which, "out": out, "format": format, "reference": reference}
    place, options, policy = _place_and_policy(policy_or_run, validated(command.Options, given))
    if format == "jax":
        return command.export(place, options, policy)
    if not is_run(place):
        raise ConfigError("format='torch' needs a run on disk: save the outcome first.")
    _, (first, *_) = command.export_torch(place, options)
    return first.parent


def _place_and_policy(given: Run, options: Any) -> tuple[Path, Any, TrainedPolicy | None]:
    """Where files go, the options, and the policy unless it is that of the run there."""
    if isinstance(given, str | Path):
        return Path(given), options, None
    place = given.path if isinstance(given, Outcome) and given.path else Path()
    return place, options, load_policy(given, options.which)


def report(
    runs: str | Path | Outcome | Sequence[str | Path | Outcome],
    html: str | Path | None = "RUN/report.html",
    *,
    replays: int = 3,
    episodes: int = 3,
    png: str | Path | None = None,
    svg: str | Path | None = None,
    against: Literal["steps", "time"] = "steps",
) -> list[Path]:
    """Compare runs, seeds and sweeps on one web page, and return the files. RUN is the run's
    directory, or the current one for several runs."""
    from jmarl.commands import report as command

    given = {"html": html, "replays": replays, "episodes": episodes, "png": png, "svg": svg}
    options = validated(command.Options, given | {"against": against})
    several = [runs] if isinstance(runs, str | Path | Outcome) else runs
    return command.report([_directory(run) for run in several], options, lambda text: None)


def _directory(run: str | Path | Outcome) -> Path:
    if not isinstance(run, Outcome):
        return Path(run)
    if run.path is None:
        raise ConfigError(f"{run!r} has no directory; outcome.save(path) writes one.")
    return run.path


def sweep(
    config: Mapping[str, Any] | str | Path | None = None,
    *,
    resume: str | Path | None = None,
    **options: Any,
) -> "Searched":
    """Search over hyperparameters and seeds. `config` is a mapping or a file, as
    `python -m jmarl.sweep` reads it; options go over it: `sweep(base={…}, grid={"lr": […]})`.
    Returns the directory (`path`) and the ranking of the settings (`ranking`)."""
    from jmarl.commands import sweep as command
    from jmarl.config.sweep_values import build as build_sweep
    from jmarl.config.sweep_values import read_sweep
    from jmarl.runs.terminal import make_console
    from jmarl.runs.user_dirs import jax_cache_restored
    from jmarl.sweeps.plan import plan

    if resume is not None:
        chosen = command.resumed(Path(resume), options)
    else:
        below = read_sweep(Path(config)) if isinstance(config, str | Path) else dict(config or {})
        chosen = build_sweep({**below, **options})
    members = plan(chosen)
    command.make_devices(chosen, members)
    with jax_cache_restored():
        return command.search_members(chosen, members, make_console(sys.stdout))
