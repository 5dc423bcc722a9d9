"""Continuous PPO on MuJoCo's worlds: jmarl and the PyTorch trainer on the same worlds of Gymnasium,
which Python steps, beside what CleanRL has published.

All have CleanRL's settings (`configs/ppo_halfcheetah.yaml`, `ppo_hopper.yaml`). A run's figure is
CleanRL's: the mean return of the last 100 episodes of training, whose actions are sampled. Times
exclude evaluation and compilation. Unlike CleanRL, both trainers bootstrap where time has run out.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import stdtrit

from benchmarks.report import Row, console, save, stored, table
from benchmarks.torch_baseline import ppo as baseline
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import Config, build, read_preset
from jmarl.envs.adapters.gymnasium import AGENT, GymnasiumWorld
from jmarl.envs.adapters.host import HostWorlds
from jmarl.envs.adapters.joint_worlds import HostStep
from jmarl.execution.compilation import compile_programs

CONFIGS = Path(__file__).parent.parent / "configs"
PRESETS = {"HalfCheetah-v5": "ppo_halfcheetah.yaml", "Hopper-v5": "ppo_hopper.yaml"}
LAST = 100  # episodes of training
SUBJECTS = ("jmarl", "torch")
METRICS = ("steps", "seconds", "train_return", "eval_return")


class Published(NamedTuple):
    """Mean and standard deviation over three seeds after a million steps, on the v4 worlds."""

    mean: float
    std: float


# ppo_continuous_action.py, https://docs.cleanrl.dev/rl-algorithms/ppo/#experiment-results_2
# (docs/benchmark/ppo_continuous_action.md in its repository, of November 2023)
CLEANRL = {"HalfCheetah-v5": Published(1442.64, 46.03), "Hopper-v5": Published(2382.86, 271.74)}


class Trained(NamedTuple):
    """A run's figures, in the order of `METRICS`."""

    steps: int
    seconds: float  # of training, without evaluation
    train_return: float
    eval_return: float


Train = Callable[[int], Trained]  # of a seed
Turn = tuple[int, str]  # seed and subject


class Recorded(GymnasiumWorld):
    """A world that notes the return of every episode that ends."""

    def __init__(self, case: str, returns: list[float]) -> None:
        super().__init__(f"gymnasium/{case}", case, {})
        self.returns, self.total = returns, 0.0

    def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        self.total = 0.0
        return super().reset(seed)

    def step(self, actions: dict[str, Any]) -> HostStep:
        done = super().step(actions)
        self.total += float(done.reward[AGENT])
        if done.terminated[AGENT] or done.truncated[AGENT]:
            self.returns.append(self.total)
        return done


def configured(case: str, steps: int | None) -> Config:
    preset = read_preset(CONFIGS / PRESETS[case])
    return build(preset if steps is None else {**preset, "total_steps": steps})


def length(config: Config) -> int:
    """Steps of a run: whole updates."""
    return config.num_updates * config.steps_per_update


def last_mean(returns: Sequence[float]) -> float:
    return float(np.mean(returns[-LAST:])) if returns else float("nan")


def jmarl_trainer(case: str, config: Config) -> Train:
    returns: list[float] = []
    trainer, hyper = make_trainer(config)
    trainer = replace(trainer, env=HostWorlds.of(partial(Recorded, case, returns), False))
    started = time.perf_counter()
    programs = compile_programs(trainer, hyper, config.eval_episodes)
    console.print(f"{case}: jmarl compiled in {time.perf_counter() - started:.0f} s")

    def train(seed: int) -> Trained:
        init_key, eval_key = jax.random.split(jax.random.key(seed))
        state = jax.block_until_ready(programs.init(init_key))
        returns.clear()
        started = time.perf_counter()
        for _ in range(config.num_updates):
            state, _ = jax.block_until_ready(programs.step(state, hyper))
        spent, learned = time.perf_counter() - started, last_mean(returns)
        played = programs.score(state.policies, eval_key, np.asarray(True))
        score = float(np.asarray(played.agent_return).sum(1).mean())
        return Trained(length(config), spent, learned, score)

    return train


def torch_trainer(case: str, options: baseline.Options) -> Train:
    options = replace(options, evaluations=1)  # at the end

    def train(seed: int) -> Trained:
        seen: list[baseline.Progress] = []

        def report(progress: baseline.Progress) -> bool:
            seen.append(progress)
            return False

        baseline.train(case, options, seed, report)
        last = seen[-1]
        return Trained(last.steps, last.seconds, last_mean(last.returns), last.eval_return)

    return train


def measure(
    case: str, trainers: dict[str, Callable[[], Train]], todo: list[Turn], path: Path
) -> None:
    """The subjects take turns, seed by seed. What a seed has given is in the file at once."""
    made: dict[str, Train] = {}
    for seed, subject in todo:
        if subject not in made:
            made[subject] = trainers[subject]()
        trained = made[subject](seed)
        pairs = zip(METRICS, trained, strict=True)
        rows = [Row(f"{case}/seed{seed}", subject, metric, value) for metric, value in pairs]
        save(path, stored(path) + rows)
        console.print(
            f"{case}, seed {seed}, {subject}: return {trained.train_return:,.0f} in training, "
            f"{trained.eval_return:,.0f} greedily; {trained.steps:,} steps in "
            f"{trained.seconds:.0f} s, {1e5 * trained.seconds / trained.steps:.1f} s per 100,000"
        )


def kept(rows: list[Row], case: str, steps: int) -> list[Row]:
    """Without the case's totals and its runs of other lengths."""
    good = {(row.case, row.subject) for row in rows if row.metric == "steps" and row.value == steps}
    return [
        row for row in rows if row.case.partition("/")[0] != case or (row.case, row.subject) in good
    ]


def missing(rows: list[Row], case: str, seeds: int) -> list[Turn]:
    """What was not measured, in the order in which the subjects take turns."""
    there = {(row.case, row.subject) for row in rows}
    turns = itertools.product(range(seeds), SUBJECTS)
    return [turn for turn in turns if (f"{case}/seed{turn[0]}", turn[1]) not in there]


def figures(rows: Sequence[Row], case: str, seeds: int) -> dict[str, dict[str, np.ndarray]]:
    """By subject and metric: of all seeds."""
    wanted = [f"{case}/seed{seed}" for seed in range(seeds)]
    values = {(row.case, row.subject, row.metric): row.value for row in rows}
    return {
        subject: {
            metric: np.array([values[place, subject, metric] for place in wanted])
            for metric in METRICS
        }
        for subject in SUBJECTS
    }


def mean_interval(sample: np.ndarray) -> tuple[float, float, float]:
    """The mean, and its 95 % interval by Student's t; NaN for a single number."""
    mean, size = float(sample.mean()), len(sample)
    if size < 2:
        return mean, float("nan"), float("nan")
    half = float(stdtrit(size - 1, 0.975)) * float(sample.std(ddof=1)) / size**0.5
    return mean, mean - half, mean + half


def overlap(one: np.ndarray, other: np.ndarray) -> bool | None:
    """Whether the intervals of two means meet. None: there are none."""
    (_, low, high), (_, other_low, other_high) = mean_interval(one), mean_interval(other)
    if not np.isfinite([low, high, other_low, other_high]).all():
        return None
    return low <= other_high and other_low <= high


def compare(
    case: str,
    steps: int | None,
    seeds: int,
    again: bool,
    torch_options: Callable[[Config], baseline.Options],
    path: Path,
) -> None:
    """Measure what the file lacks, all if `again`, and print what all seeds gave."""
    config = configured(case, steps)
    rows = kept(stored(path), case, 0 if again else length(config))
    save(path, rows)
    trainers: dict[str, Callable[[], Train]] = {
        "jmarl": lambda: jmarl_trainer(case, config),
        "torch": lambda: torch_trainer(case, torch_options(config)),
    }
    measure(case, trainers, missing(rows, case, seeds), path)
    save(path, stored(path) + summarise(stored(path), case, seeds))


def summarise(rows: Sequence[Row], case: str, seeds: int) -> list[Row]:
    """Print what the seeds gave together; as figures, too."""
    found, totals, lines = figures(rows, case, seeds), [], []
    for subject, own in found.items():
        rate = own["steps"] / own["seconds"]
        cells = [f"{rate.mean():,.0f}", f"{1e5 / rate.mean():.0f}"]
        totals.append(Row(case, subject, "steps_per_s", float(rate.mean())))
        for metric in ("train_return", "eval_return"):
            ends = mean_interval(own[metric])
            names = (metric, f"{metric}_low", f"{metric}_high")
            pairs = zip(names, ends, strict=True)
            totals += [Row(case, subject, name, value) for name, value in pairs if value == value]
            within = " ({:,.0f} … {:,.0f})".format(*ends[1:]) if seeds > 1 else ""
            cells.append(f"{ends[0]:,.0f}{within}")
        lines.append([subject, *cells])
    published = CLEANRL[case]
    theirs = f"{published.mean:,.0f} ± {published.std:,.0f}"
    lines.append(["CleanRL, v4", "", "", theirs, ""])
    columns = ["", "steps/s", "s per 100,000 steps", "last 100 episodes", "greedy"]
    steps = int(found["jmarl"]["steps"][0])
    table(f"{case}, {steps:,} steps, means of seeds: {seeds} (95 % intervals)", columns, lines)
    meet = overlap(found["jmarl"]["train_return"], found["torch"]["train_return"])
    words = {True: "overlap", False: "do not overlap", None: "need at least two seeds"}
    console.print(f"{case}: the intervals of the last {LAST} episodes {words[meet]}.")
    console.print("CleanRL's ± is the standard deviation of three seeds after 1,000,000 steps.")
    return totals
