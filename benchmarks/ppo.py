"""Continuous PPO: jmarl against the same trainer in PyTorch on gymnasium's environments.

Both use the same networks, batches, epochs and learning rates; the times exclude evaluation and
compilation. The subjects take turns, seed by seed, so that a busy machine disturbs both equally.

Pendulum-v1: both train until the mean return on 50 fixed initial states reaches -200, jmarl on
gymnax's worlds. HalfCheetah-v5, Hopper-v5 (extra `gymnasium`): both train for a million steps on
Gymnasium's worlds (`ppo_mujoco`). What a seed has given is kept in the file, and is not measured
again, unless `--again` is given.
"""

import argparse
import statistics
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks import ppo_mujoco
from benchmarks.report import Row, arguments, console, others, table, write
from benchmarks.torch_baseline import ppo as baseline
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import Config, build, read_preset
from jmarl.errors import ConfigError
from jmarl.execution.compilation import Programs, compile_programs
from jmarl.learning.ppo_loss import HyperParams

PRESET = Path(__file__).parent.parent / "configs" / "ppo_pendulum.yaml"
CASE, ENOUGH = "Pendulum-v1", -200.0
SEEDS, QUICK_SEEDS = 5, 1


def torch_options(config: Config) -> baseline.Options:
    """The options of the preset, under the same names."""
    given: dict[str, Any] = {}
    for field in fields(baseline.Options):
        for section in (config, config.ppo):
            if hasattr(section, field.name):
                given[field.name] = getattr(section, field.name)
    return baseline.Options(**given)


def train_jmarl(
    config: Config, programs: Programs, hyper: HyperParams, seed: int
) -> list[baseline.Progress]:
    """Train until the target return; returns every evaluation."""
    greedy = jnp.asarray(True)
    init_key, eval_key = jax.random.split(jax.random.key(seed))
    state, spent, progress_made = jax.block_until_ready(programs.init(init_key)), 0.0, []
    for done in range(1, config.num_updates + 1):
        started = time.perf_counter()
        state, _ = jax.block_until_ready(programs.step(state, hyper))
        spent += time.perf_counter() - started
        if done % config.updates_between_evaluations == 0 or done == config.num_updates:
            played = programs.score(state.policies, eval_key, greedy)
            mean = float(np.asarray(played.agent_return).sum(1).mean())
            progress_made.append(baseline.Progress(done * config.steps_per_update, spent, mean))
            if mean > ENOUGH:
                break
    return progress_made


def train_torch(config: Config, seed: int) -> list[baseline.Progress]:
    progress_made: list[baseline.Progress] = []

    def report(progress: baseline.Progress) -> bool:
        progress_made.append(progress)
        return progress.eval_return > ENOUGH

    baseline.train(CASE, torch_options(config), seed, report)
    return progress_made


def compiled(config: Config) -> tuple[tuple[Programs, HyperParams], float]:
    """What training runs, and the seconds until its first step is done."""
    trainer, hyper = make_trainer(config)
    started = time.perf_counter()
    programs = compile_programs(trainer, hyper, config.eval_episodes)
    jax.block_until_ready(programs.step(programs.init(jax.random.key(0)), hyper))
    return (programs, hyper), time.perf_counter() - started


def _choices(parser: argparse.ArgumentParser) -> None:
    names, mujoco = (CASE, *ppo_mujoco.PRESETS), "MuJoCo's worlds"
    parser.add_argument("--cases", nargs="+", choices=names, default=[CASE], help="what to measure")
    parser.add_argument("--steps", type=int, help=f"of each run in {mujoco} (default: 1,000,000)")
    parser.add_argument("--seeds", type=int, help=f"how many (default: {SEEDS})")
    parser.add_argument("--again", action="store_true", help=f"replace what is known of {mujoco}")


def main() -> None:
    options = arguments(__doc__, "ppo", _choices)
    torch.set_num_threads(1)  # on nets of this size a third faster than two
    seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    for case in dict.fromkeys(options.cases):
        if case == CASE:
            write(options.json, others(options.json, [CASE]) + race(seeds))
        else:
            given = (options.steps, seeds, options.again, torch_options, options.json)
            try:
                ppo_mujoco.compare(case, *given)
            except ConfigError as refusal:
                raise SystemExit(str(refusal)) from None


def race(seeds: int) -> list[Row]:
    """Until the target return on Pendulum."""
    config = build(read_preset(PRESET))
    programs, compile_s = compiled(config)
    rows = [Row(CASE, "jmarl", "compile_s", compile_s)]
    taken: dict[str, list[float]] = {"jmarl": [], "torch": []}
    rates: dict[str, list[float]] = {"jmarl": [], "torch": []}
    for seed in range(seeds):
        for subject in taken:
            ours = subject == "jmarl"
            seen = train_jmarl(config, *programs, seed) if ours else train_torch(config, seed)
            last = seen[-1]
            reached = last.eval_return > ENOUGH
            console.print(
                f"{subject}, seed {seed}: {last.eval_return:.0f} after {last.steps:,} steps, "
                f"{last.seconds:.1f} s" + ("" if reached else f" (never above {ENOUGH:.0f})")
            )
            taken[subject].append(last.seconds if reached else float("inf"))
            rates[subject].append(last.steps / last.seconds)
            rows.append(Row(f"{CASE}/seed{seed}", subject, "steps", last.steps))
            rows.append(Row(f"{CASE}/seed{seed}", subject, "seconds", last.seconds))
            rows.append(Row(f"{CASE}/seed{seed}", subject, "return_mean", last.eval_return))
    time_to, rate = ({s: statistics.median(x[s]) for s in x} for x in (taken, rates))
    for subject in taken:
        rows.append(Row(CASE, subject, "seconds_to_-200", time_to[subject]))
        rows.append(Row(CASE, subject, "steps_per_s", rate[subject]))
    lines = [[s, f"{time_to[s]:.1f}", f"{rate[s]:,.0f}"] for s in taken]
    ratios = [time_to["torch"] / time_to["jmarl"], rate["jmarl"] / rate["torch"]]
    lines.append(["ratio", *(f"{ratio:.0f}×" for ratio in ratios)])
    table(f"{CASE}, median of seeds", ["", "seconds to -200", "steps/s"], lines)
    console.print(f"compilation of jmarl's step, once: {compile_s:.1f} s")
    return rows


if __name__ == "__main__":
    main()
