"""Compares the rules for agents that die (`ppo.agent_end`) on SMAX.

IPPO, several seeds as one vmapped program. Win rates and returns come from greedy battles. Values
are predictions of the trained critics, in units of returns, for active and for dead agents of one
more rollout. Seconds count training only. If maps are named, only their figures in the file are
replaced.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple, get_args

import jax
import numpy as np

from benchmarks.report import Row, arguments, console, table, write
from jmarl.algorithms.build import make_trainer
from jmarl.config.train_config import Config, build
from jmarl.execution.members import Members
from jmarl.execution.population import Population
from jmarl.learning.collectives import Layout
from jmarl.learning.rollout import rollout
from jmarl.learning.vmapped import VmappedTrainer
from jmarl.literals import AgentEnd

UPDATES = {"3m": 150, "2s3z": 60}
SEEDS = 4
POINTS = 3  # evaluations, evenly over training
EPISODES = 128
CHOSEN: dict[str, Any] = {
    "algorithm": "ippo",
    "env": "jaxmarl/HeuristicEnemySMAX",
    "num_envs": 32,
    "rollout_length": 100,  # the longest battle
    "net": {"hidden": [128, 128], "activation": "relu", "agent_id": "obs"},
    "ppo": {
        "lr": 1e-3,
        "gamma": 0.99,
        "epochs": 4,
        "num_minibatches": 4,
        "clip_apart": True,
        "max_grad_norm": 0.5,
        "entropy_coef": 0.01,
    },
}


class Sizes(NamedTuple):
    updates: dict[str, int]  # of each map
    seeds: int
    episodes: int


FULL = Sizes(UPDATES, SEEDS, EPISODES)
QUICK = Sizes({"3m": 3}, 2, 16)


def configured(map_name: str, agent_end: AgentEnd, updates: int) -> Config:
    ppo = CHOSEN["ppo"] | {"agent_end": agent_end}
    options = {"map_name": map_name}
    return build(CHOSEN | {"env_options": options, "total_updates": updates, "ppo": ppo})


def measure(config: Config, seeds: int, episodes: int) -> list[Row]:
    """The figures of one map and one rule, each for every seed."""
    trainer, hyper = make_trainer(config)
    members = Members.alike(range(config.seed, config.seed + seeds), hyper)
    population = Population(trainer, members, episodes, per_batch=seeds)
    population.compile()
    population.init()
    case, subject = str(config.env_options["map_name"]), config.ppo.agent_end
    figures: dict[str, Any] = {}
    done, spent = 0, 0.0
    for point in range(1, POINTS + 1):
        until = config.num_updates * point // POINTS
        started = time.perf_counter()
        population.advance(until - done)
        jax.block_until_ready(population.batches)
        spent, done = spent + time.perf_counter() - started, until
        episodes_played, steps = (
            population.play(population.parameters(), greedy=True),
            done * config.steps_per_update,
        )
        won, returns = (
            np.asarray(episodes_played.won).mean(1),
            np.asarray(episodes_played.agent_return).sum(2).mean(1),
        )
        figures |= {f"win_rate/{steps}": won, f"return/{steps}": returns}
        console.print(f"{case}, {subject}: {steps:,} steps, {spent:.0f} s, won {won.mean():.0%}")
    figures |= values(population, seeds)
    each = [
        Row(case, subject, f"{name}/seed_{i}", float(x))
        for name, of_seeds in figures.items()
        for i, x in enumerate(of_seeds)
    ]
    return [*each, Row(case, subject, "seconds", spent)]


def values(population: Population, seeds: int) -> dict[str, jax.Array]:
    """Mean predicted values `[M]` of active and of dead agents in one more rollout."""
    trainer, population = population.trainer, VmappedTrainer(population.trainer)

    def predicted(state: Any, key: jax.Array) -> dict[str, jax.Array]:
        keys, length = tuple(jax.random.split(key)), trainer.rollout_length
        given = (trainer.env, trainer.players, state, keys, length, (None,), Layout())
        _, (played,), _ = rollout(*given)
        value = state.learners[0].value_norm.denormalise(played.output.value)
        alive = played.active > 0
        return {
            "value_alive": value.mean(where=alive),
            "value_dead": value.mean(where=~alive),
            "part_dead": 1.0 - played.active.mean(),
        }

    keys = jax.random.split(jax.random.key(0), seeds)
    return jax.jit(jax.vmap(predicted, in_axes=(population.axes, 0)))(population.states(), keys)


def lines(rows: list[Row]) -> list[list[str]]:
    """One line per map and rule: means over seeds, win rates also with minimum and maximum."""
    table_lines = []
    for case, subject in dict.fromkeys((row.case, row.subject) for row in rows):
        each: dict[str, list[float]] = {}
        for row in rows:
            if (row.case, row.subject) == (case, subject):
                name, _, _ = row.metric.partition("/seed_")
                each.setdefault(name, []).append(row.value)
        wins = [v for name, v in each.items() if name.startswith("win_rate/")]
        returns = [v for name, v in each.items() if name.startswith("return/")]
        steps = max(int(name.partition("/")[2]) for name in each if name.startswith("return/"))
        table_lines.append(
            [
                f"{case} {subject}, {steps:,} steps",
                *(f"{np.mean(v):.0%} ({min(v):.0%} … {max(v):.0%})" for v in wins),
                " ".join(f"{np.mean(v):.2f}" for v in returns),
                *(f"{np.mean(each[name]):.2f}" for name in ("value_alive", "value_dead")),
                f"{np.mean(each['part_dead']):.0%}",
                f"{each['seconds'][0] / 60:.1f}",
            ]
        )
    return table_lines


def earlier(path: Path) -> list[Row]:
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return [Row(**row) for row in rows]


def main() -> None:
    def further(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "maps", nargs="*", metavar="MAP", help=f"of {', '.join(UPDATES)}; all by default"
        )

    options = arguments(__doc__, "deaths", further)
    sizes = QUICK if options.quick else FULL
    maps = options.maps or list(sizes.updates)
    if unknown := [name for name in maps if name not in sizes.updates]:
        raise SystemExit(f"unknown map {unknown[0]!r}; known: {', '.join(sizes.updates)}.")
    kept = earlier(options.json) if options.maps else []
    rows = [row for row in kept if row.case not in maps]
    for map_name in maps:
        for agent_end in get_args(AgentEnd):
            config = configured(map_name, agent_end, sizes.updates[map_name])
            rows += measure(config, sizes.seeds, sizes.episodes)
    write(options.json, rows)
    won = [f"won at {i}/{POINTS}" for i in range(1, POINTS + 1)]
    columns = ["", *won, "returns", "V(alive)", "V(dead)", "dead", "minutes"]
    table(f"IPPO on SMAX, {sizes.seeds} seeds", columns, lines(rows))


if __name__ == "__main__":
    main()
