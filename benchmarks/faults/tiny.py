"""The tiny runs and sweeps that faults happen to."""

from pathlib import Path
from typing import NamedTuple

from benchmarks.faults.commands import Done, finished
from jmarl.runs.files import CONFIG

RUN = "x"  # the directory, below the place of each trial
EVERY = 2  # updates between checkpoints
KEPT = 3
OPTIONS = {
    "algorithm": "ippo",
    "num_envs": 4,
    "rollout_length": 5,
    "log_every": 1,
    "eval_every": 6,
    "eval_episodes": 4,
    "checkpoint_every": EVERY,
    "net.hidden": 8,
    "ppo.epochs": 1,
    "ppo.num_minibatches": 1,
}
SEARCHED = {"lr": "1e-3,3e-3,1e-2,3e-2"}
QUIET = ("--no-tensorboard", "--no-gif", "--quiet", "--devices", "1")


class Case(NamedTuple):
    """A command that trains, and how it goes on."""

    command: str
    words: list[str]
    again: list[str]
    marker: str  # the file that makes a directory one that can be resumed

    def next_words(self, place: Path) -> list[str]:
        return self.again if (place / RUN / self.marker).is_file() else self.words


def run(updates: int, *further: str, quiet: bool = True) -> Case:
    typed = [part for n, v in OPTIONS.items() for part in (f"--{n.replace('_', '-')}", str(v))]
    typed += ["--total-updates", str(updates), "--keep-checkpoints", str(KEPT)]
    typed += [*(QUIET if quiet else QUIET[:1]), *further]
    return Case("train", [*typed, "--run-dir", RUN], ["--resume", RUN], CONFIG)


def sweep(updates: int, *further: str) -> Case:
    own = {"total_updates": updates, "net.hidden": "[8]"}
    base = [f"{name}={value}" for name, value in (OPTIONS | own).items()]
    base += ["tensorboard=False", f"keep_checkpoints={KEPT}"]
    grid = [f"{name}={values}" for name, values in SEARCHED.items()]
    typed = ["--base", *base, "--grid", *grid, "--no-plots", "--quiet", "--devices", "1"]
    first = [*typed, *further, "--sweep-dir", RUN]
    return Case("sweep", first, ["--resume", RUN], "sweep.yaml")


def completed(case: Case, place: Path) -> Done:
    """The uninterrupted one."""
    done = finished(case.command, case.words, place)
    if done.code:
        raise RuntimeError(f"the undisturbed run failed: {done.err}")
    return done
