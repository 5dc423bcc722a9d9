"""Continuous PPO on Pendulum: jmarl against the same trainer in PyTorch on gymnasium's worlds.

Same networks, batches, epochs and rates. Both are asked for a mean return of -200 on 50 fixed
initial states; evaluation and compilation are not counted in their times. The subjects take turns,
seed after seed, so that a busy machine disturbs both alike.
"""

import statistics
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from benchmarks.report import Row, arguments, console, table, write
from benchmarks.torch_baseline import ppo as baseline
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import Config, build, read_preset
from jmarl.learning.episodes import play_episodes

PRESET = Path(__file__).parent.parent / "configs" / "ppo_pendulum.yaml"
CASE, ENOUGH = "Pendulum-v1", -200.0
SEEDS, QUICK_SEEDS = 5, 1


def torch_options(config: Config) -> baseline.Options:
    """The preset's, under the same names."""
    given: dict[str, Any] = {}
    for field in fields(baseline.Options):
        for section in (config, config.ppo):
            if hasattr(section, field.name):
                given[field.name] = getattr(section, field.name)
    return baseline.Options(**given)


def train_jmarl(config: Config, programs: tuple[Any, ...], seed: int) -> list[baseline.Progress]:
    """Until it is enough; every evaluation on the way."""
    init, step, score, hyper = programs
    init_key, eval_key = jax.random.split(jax.random.key(seed))
    state, spent, seen = jax.block_until_ready(init(init_key)), 0.0, []
    for done in range(1, config.num_updates + 1):
        started = time.perf_counter()
        state, _ = jax.block_until_ready(step(state, hyper))
        spent += time.perf_counter() - started
        if done % config.updates_between_evaluations == 0 or done == config.num_updates:
            returns = score(state.params, state.normalisers, eval_key)
            mean = float(np.mean(returns))
            seen.append(baseline.Progress(done * config.steps_per_update, spent, mean))
            if mean > ENOUGH:
                break
    return seen


def train_torch(config: Config, seed: int) -> list[baseline.Progress]:
    seen: list[baseline.Progress] = []

    def report(progress: baseline.Progress) -> bool:
        seen.append(progress)
        return progress.eval_return > ENOUGH

    baseline.train(CASE, torch_options(config), seed, report)
    return seen


def compile_programs(config: Config) -> tuple[tuple[Any, ...], float]:
    trainer, hyper = make_trainer(config)

    def score(params: Any, norms: Any, key: jax.Array) -> jax.Array:
        episodes = config.eval_episodes
        seen = play_episodes(trainer.env, trainer.groups, params, key, episodes, norms=norms)
        return seen.agent_return.sum(1)

    started = time.perf_counter()
    init, step = jax.jit(trainer.init), jax.jit(trainer.step, donate_argnums=0)
    state = init(jax.random.key(0))
    compiled = step.lower(state, hyper).compile()
    jax.block_until_ready(compiled(state, hyper))
    return (init, compiled, jax.jit(score), hyper), time.perf_counter() - started


def main() -> None:
    options = arguments(__doc__, "ppo")
    config = build(read_preset(PRESET))
    torch.set_num_threads(1)  # on nets of this size a third faster than two
    programs, compile_s = compile_programs(config)
    rows = [Row(CASE, "jmarl", "compile_s", compile_s)]
    taken: dict[str, list[float]] = {"jmarl": [], "torch": []}
    rates: dict[str, list[float]] = {"jmarl": [], "torch": []}
    for seed in range(QUICK_SEEDS if options.quick else SEEDS):
        for subject in taken:
            ours = subject == "jmarl"
            seen = train_jmarl(config, programs, seed) if ours else train_torch(config, seed)
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
    write(options.json, rows)


if __name__ == "__main__":
    main()
