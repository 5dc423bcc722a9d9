"""Learning curves of presets: greedy returns during training, next to those of a random policy.

Every preset is trained for its own budget; several seeds are one vmapped program. Seconds count
training only, without compilation and evaluation. If presets are named, only their figures in the
file are replaced.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.report import Row, arguments, console, table, write
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import Config, build, read_preset
from jmarl.envs.base import Env
from jmarl.envs.spaces import Box
from jmarl.execution.members import Members
from jmarl.execution.population import Population
from jmarl.learning.episodes import Episodes
from jmarl.policies.action_distributions import make_actions

CONFIGS = Path(__file__).parent.parent / "configs"
SEEDS = {  # preset → number of seeds, vmapped
    "mat_long_simple_spread": 1,
    "mappo_simple_spread": 1,
    "ippo_simple_spread": 1,
    "mappo_simple_reference": 1,
    "ippo_simple_reference": 1,
    "mappo_simple_speaker_listener": 1,
    "ippo_simple_speaker_listener": 1,
    "rmappo_smax_3m": 1,
    "ppo_pendulum": 5,
    "ppo_mountain_car": 5,
    "ppo_simple": 5,
}
QUICK = ("ppo_pendulum", "ppo_simple")
EPISODES = 1024
EVALUATIONS = 20


class Point(NamedTuple):
    """One evaluation."""

    steps: int
    seconds: float
    returns: list[float]  # of each seed, summed over agents
    win_rates: list[float] | None


class Curve(NamedTuple):
    preset: str
    scenario: str
    algorithm: str
    random: float
    points: list[Point]


def random_return(env: Env, key: jax.Array, episodes: int) -> float:
    """The return of a policy that samples uniformly from the legal actions."""
    space, length = env.spec.action_space, env.spec.episode_length
    assert length is not None

    def step(carry: tuple, key: jax.Array) -> tuple:
        state, timestep, total, running = carry
        act_key, step_key = jax.random.split(key)
        shape = timestep.action_mask.shape
        if isinstance(space, Box):
            bounds = (jnp.asarray(side)[None, None] for side in (space.low, space.high))
            low, high = (jnp.broadcast_to(side, shape) for side in bounds)
            action = low + (high - low) * jax.random.uniform(act_key, shape)
        else:
            actions = make_actions(space)
            noise = actions.noise(act_key, shape, jnp.float32)
            action = actions.sample(noise, jnp.zeros(shape), jnp.ones(()), timestep.action_mask)
        state, timestep = env.step(step_key, state, action)
        total = total + running * timestep.reward.sum(1)
        return (state, timestep, total, running * ~timestep.over), None

    def play(key: jax.Array) -> jax.Array:
        reset_key, key = jax.random.split(key)
        state, timestep = env.reset(reset_key, episodes)
        start = (state, timestep, jnp.zeros(episodes), jnp.ones(episodes))
        return lax.scan(step, start, jax.random.split(key, length))[0][2].mean()

    return float(jax.jit(play)(key))


def learn(preset: str, config: Config, seeds: int) -> Curve:
    trainer, hyper = make_trainer(config)
    members = Members.alike(range(config.seed, config.seed + seeds), hyper)
    population = Population(trainer, members, EPISODES, per_batch=seeds)
    population.compile()
    population.init()
    scenario = str(config.env_options.get("map_name", config.env.rpartition("/")[2]))
    random = random_return(trainer.env, jax.random.key(config.seed), EPISODES)
    curve, spent, done = Curve(preset, scenario, config.algorithm, random, []), 0.0, 0
    every = max(1, config.num_updates // EVALUATIONS)
    while True:
        returns, won = _means(population.play(population.parameters(), greedy=True))
        wins = None if won is None else won.tolist()
        point = Point(done * config.steps_per_update, spent, returns.tolist(), wins)
        curve.points.append(point)
        shown = "" if wins is None else f", won {np.mean(wins):.0%}"
        console.print(
            f"{preset}: {point.steps:,} steps, {spent:.0f} s, "
            f"return {np.mean(point.returns):.1f}{shown} (random {random:.1f})"
        )
        if done == config.num_updates:
            return curve
        length = min(every, config.num_updates - done)
        started = time.perf_counter()
        population.advance(length)
        jax.block_until_ready(population.batches)
        spent += time.perf_counter() - started
        done += length


def _means(episodes: Episodes) -> tuple[np.ndarray, np.ndarray | None]:
    """Means over each member's episodes: returns summed over agents, and win rates."""
    won = None if episodes.won is None else np.asarray(episodes.won).mean(1)
    return np.asarray(episodes.agent_return).sum(2).mean(1), won


def rows_of(curve: Curve) -> list[Row]:
    last, row = curve.points[-1], partial(Row, curve.scenario, curve.algorithm)
    returns = last.returns
    rows = [
        row("return_mean", float(np.mean(returns))),
        row("return_random", curve.random),
        row("steps", last.steps),
        row("seconds", last.seconds),
        row("seeds", len(returns)),
    ]
    if len(returns) > 1:
        rows += [row("return_min", min(returns)), row("return_max", max(returns))]
    if last.win_rates is not None:
        rows.append(row("win_rate", float(np.mean(last.win_rates))))
    return rows


def line(curve: Curve) -> list[str]:
    first, last = curve.points[0], curve.points[-1]
    spread = "" if len(last.returns) == 1 else f"{min(last.returns):.1f} … {max(last.returns):.1f}"
    return [
        f"{curve.scenario} {curve.algorithm}",
        f"{curve.random:.1f}",
        f"{np.mean(first.returns):.1f}",
        f"{np.mean(last.returns):.1f}",
        spread,
        "" if last.win_rates is None else f"{np.mean(last.win_rates):.0%}",
        f"{last.steps:,}",
        f"{last.seconds / 60:.1f}",
    ]


def draw(curves: list[Curve], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    scenarios = list(dict.fromkeys(curve.scenario for curve in curves))
    wide = min(3, len(scenarios))
    high = -(-len(scenarios) // wide)
    figure, axes = plt.subplots(high, wide, figsize=(4 * wide, 3 * high), squeeze=False)
    for axis in axes.flat[len(scenarios) :]:
        axis.set_axis_off()
    for axis, scenario in zip(axes.flat, scenarios, strict=False):
        mine = [curve for curve in curves if curve.scenario == scenario]
        for curve in mine:
            steps = [point.steps / 1e6 for point in curve.points]
            returns = np.array([point.returns for point in curve.points])
            line = axis.plot(steps, returns.mean(1), label=curve.algorithm)[0]
            if returns.shape[1] > 1:
                low, high = returns.min(1), returns.max(1)
                axis.fill_between(steps, low, high, alpha=0.2, color=line.get_color())
        axis.axhline(mine[0].random, color="grey", linestyle=":", label="random")
        axis.set_title(scenario)
        axis.set_xlabel("million steps")
        axis.set_ylabel("greedy return")
        axis.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    console.print(f"curves: {path}")


def replaced(path: Path, curves: list[Curve]) -> list[Curve]:
    """The curves of an earlier run, with those trained now replaced."""
    before = json.loads(path.read_text(encoding="utf-8"))["curves"] if path.exists() else []
    kept = [Curve(**c | {"points": [Point(**p) for p in c["points"]]}) for c in before]
    known = {curve.preset: curve for curve in (*kept, *curves)}
    order = [preset for preset in SEEDS if preset in known]
    return [known[preset] for preset in order]


def main() -> None:
    def further(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "presets", nargs="*", metavar="PRESET", help=f"of {', '.join(SEEDS)}; all by default"
        )

    options = arguments(__doc__, "learning", further)
    presets = options.presets or (QUICK if options.quick else list(SEEDS))
    if unknown := [preset for preset in presets if preset not in SEEDS]:
        raise SystemExit(f"unknown preset {unknown[0]!r}; known: {', '.join(SEEDS)}.")
    curves = []
    for preset in presets:
        config = build(read_preset(CONFIGS / f"{preset}.yaml"))
        curves.append(learn(preset, config, SEEDS[preset]))
    if options.presets:
        curves = replaced(options.json, curves)
    columns = ["", "random", "untrained", "trained", "seeds", "won", "steps", "minutes"]
    table(f"greedy return, mean of {EPISODES} episodes", columns, [line(c) for c in curves])
    named = [curve._asdict() | {"points": [p._asdict() for p in curve.points]} for curve in curves]
    write(options.json, [row for curve in curves for row in rows_of(curve)], curves=named)
    draw(curves, options.json.with_suffix(".png"))


if __name__ == "__main__":
    main()
