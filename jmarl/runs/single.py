"""A run on disk: begun, recorded, interrupted, taken up again."""

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from jmarl.config.train_config import Config, build, read_preset
from jmarl.errors import ConfigError
from jmarl.execution import multihost
from jmarl.execution.members import Best, Parameters, Snapshot
from jmarl.execution.population import Crew, make_crew
from jmarl.runs import directory as run_dir
from jmarl.runs.files import CHECKPOINTS, CONFIG
from jmarl.runs.logs import Log, write_marl_eval
from jmarl.runs.loop import Entry, Outcome, Start
from jmarl.runs.multi_seed import Place, run_group
from jmarl.runs.recorder import run_recorded
from jmarl.runs.summaries import write_summary
from jmarl.stats import summary

if TYPE_CHECKING:
    from jmarl.runs.checkpoint import Checkpoints

# What may differ between a run and its continuation: none of it is in the state or the program's
# shapes. A larger budget stretches the learning rate's decay.
CHANGEABLE = {
    *("total_steps", "total_updates", "eval_every", "eval_episodes", "log_every"),
    *("checkpoint_every", "keep_checkpoints", "on_nonfinite", "compilation_cache"),
    *("run_dir", "resume", "tensorboard", "gif", "wandb", "quiet"),
    *("members_per_batch", "devices", "hosts"),
}


class Finished(NamedTuple):
    outcome: Outcome
    path: Path


class Disk:
    """Figures and checkpoints of one run directory."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path, self.config = path, config
        self.log: Log

    @cached_property
    def checkpoints(self) -> "Checkpoints":
        """Orbax takes a second to import, and a new run first needs it when it has trained."""
        from jmarl.runs.checkpoint import Checkpoints

        return Checkpoints(self.path / CHECKPOINTS, self.config.keep_checkpoints)

    def take_up(self, crew: Crew) -> Start:
        """The latest whole checkpoint; without any the run begins again, as it did."""
        if not (self.path / CHECKPOINTS).is_dir() or not self.checkpoints.updates():
            return Start()
        checkpoints = self.checkpoints
        like = crew.trainer.shapes
        latest, best = checkpoints.latest(like), checkpoints.best(like)
        checkpoints.prune(best.update)
        parameters = Parameters(best.state.params, best.state.normalisers)
        return Start(
            states=crew.population.stack([latest.state]),
            alive=crew.alive,
            update=latest.update,
            seconds=latest.about["seconds"],
            best=Best(
                score=np.array([best.about["score"]]),
                update=np.array([best.update]),
                parameters=jax.tree.map(lambda x: x[None], parameters),
            ),
        )

    def open(self, start: Start) -> None:
        """Lines of later updates come again; a run that begins anew has none."""
        run_dir.keep_resumed(self.path, self.config)
        self.log = Log(self.path, self.config, -1 if start.states is None else start.update)

    def metrics(self, entries: list[Entry], overall: Entry) -> None:
        del entries  # the only one's are those of all
        self.log.metrics(overall)

    def evaluation(self, entries: list[Entry], overall: Entry) -> None:
        del entries
        self.log.evaluation(overall)

    def save(self, update: int, snapshot: Snapshot, score: float, about: dict[str, Any]) -> None:
        """The state alone: the best parameters are in a checkpoint of their own."""
        self.checkpoints.save(update, snapshot.states, score, about)

    def last_saved(self) -> int | None:
        return max(self.checkpoints.updates(), default=None)

    def wait(self) -> None:
        self.checkpoints.wait()

    def close(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        if "checkpoints" in vars(self):
            self.checkpoints.close()


# What a command does last: (config, crew, outcome, directories of the members, console)
Ending = Callable[[Config, Crew, Outcome, list[Path], Console], None]


def run(config: Config, console: Console, ending: Ending | None = None) -> Finished:
    """Train to the end of the budget, into a new directory or the one that is resumed."""
    crew = make_crew(config)  # refuses what cannot be built: nothing is on disk yet
    made = multihost.from_first(lambda: os.fsencode(config.resume or run_dir.create(config)))
    path = Path(os.fsdecode(made))
    run_it = _run_seeds if config.seeds > 1 else _run_alone
    outcome, places = run_it(config, crew, path, console)
    if ending is not None:
        ending(config, crew, outcome, places, console)
    return Finished(outcome, path)


def _run_alone(
    config: Config, crew: Crew, path: Path, console: Console
) -> tuple[Outcome, list[Path]]:
    outcome = run_recorded(config, crew, Disk(path, config), path, console)
    if multihost.first():
        write_marl_eval(path, config, {config.seed: path})
        write_summary(path, config, outcome)
    return outcome, [path]


def _run_seeds(
    config: Config, crew: Crew, path: Path, console: Console
) -> tuple[Outcome, list[Path]]:
    """Each in a directory of its own, which is a run like any other."""
    own = {"seeds": 1, "run_dir": None, "resume": None, "members_per_batch": None}
    places = [
        Place(path / f"seed_{seed}", config.model_copy(update=own | {"seed": seed}))
        for seed in crew.seeds
    ]
    outcome = run_group(config, crew, path, places, console)
    if multihost.first():
        write_marl_eval(path, config, {place.config.seed: place.path for place in places})
        write_summary(path, config, outcome, seeds_told(outcome))
    return outcome, [place.path for place in places]


def seeds_told(outcome: Outcome) -> dict[str, Any]:
    """Of the last evaluation, and of the best parameters: how the seeds' mean returns lie."""
    told: dict[str, Any] = {"evaluation": None, "absolute": None}
    for case, prefix, absolute in (("evaluation", "eval", False), ("absolute", "absolute", True)):
        last = {e["member"]: e for e in outcome.evaluations if ("absolute" in e) == absolute}
        if last:
            returns = np.array([entry[f"{prefix}/return_mean"] for entry in last.values()])
            told[case] = {f"return_{name}": v for name, v in summary(returns).items()}
            told[case]["seeds"] = len(returns)
    return told


def resumed_values(path: Path) -> dict[str, Any]:
    """The configuration of the run in `path`, to be continued."""
    if not (path / CONFIG).is_file():
        raise ConfigError(f"resume={str(path)!r} is not a run: it has no config.yaml.")
    return read_preset(path / CONFIG) | {"resume": str(path)}


def check_continuation(config: Config) -> None:
    """Refuse to resume with another network, world or batch."""
    assert config.resume is not None
    before = build(read_preset(config.resume / CONFIG))
    told = _apart(before.model_dump(mode="json"), config.model_dump(mode="json"))
    if changed := [text for key, text in told if key.split(".")[0] not in CHANGEABLE]:
        raise ConfigError(
            f"a run resumes as it was, but {'; '.join(changed)}. Start a new run instead."
        )


def _apart(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    told = []
    for key in old.keys() | new.keys():
        was, now = old.get(key), new.get(key)
        if isinstance(was, dict) and isinstance(now, dict) and key != "env_options":
            told += _apart(was, now, f"{prefix}{key}.")
        elif was != now:
            told.append((f"{prefix}{key}", f"{prefix}{key} was {was!r}, now {now!r}"))
    return sorted(told)
