"""Runs every scenario × algorithm × action type: init, two updates, an evaluation.

Sizes are tiny: the benchmark checks that every combination runs, with finite losses and a ratio of
1 before the first change of parameters. Nearly all of the time is compilation.
"""

import itertools
import time
from typing import Any

import jax
import numpy as np

from benchmarks.report import Row, arguments, console, table, write
from jmarl.algorithms.build import make_trainer
from jmarl.config.algorithms import TRANSFORMERS
from jmarl.config.train_config import build
from jmarl.envs.mpe import SCENARIOS
from jmarl.learning.episodes import play_episodes

ALGORITHMS = ("mat", "mappo", "ippo", "rmappo", "rippo", "happo")
ACTIONS = ("discrete", "continuous")
TINY = {  # of actor-critics; `tiny` has them for all
    "num_envs": 4,
    "rollout_length": 5,
    "total_updates": 2,
    "net": {"hidden": [8]},
    "ppo": {"epochs": 1, "num_minibatches": 1},
}


def tiny(algorithm: str) -> dict[str, Any]:
    """Small sizes of the networks that the algorithm has."""
    net = {"n_embd": 8} if algorithm in TRANSFORMERS else TINY["net"]
    return TINY | {"algorithm": algorithm, "net": net}


def cell(scenario: str, algorithm: str, actions: str) -> list[Row]:
    """Run one combination; raises if a check fails."""
    started = time.perf_counter()
    chosen = tiny(algorithm) | {"env": f"mpe/{scenario}", "actions": actions}
    trainer, hyper = make_trainer(build(chosen))
    init_key, eval_key = jax.random.split(jax.random.key(0))
    step = jax.jit(trainer.step_alike)
    state, first = step(jax.jit(trainer.init)(init_key), hyper)
    state, second = step(state, hyper)
    returns = jax.jit(lambda p, k: play_episodes(trainer.env, trainer.players, p, k, 4))(
        state.policies, eval_key
    ).agent_return
    for metrics in (first, second):
        if bad := [name for name, value in metrics.items() if not np.isfinite(value)]:
            raise AssertionError(f"{chosen}: {', '.join(bad)} not finite")
    error = max(abs(float(v) - 1) for name, v in first.items() if name.startswith("losses/ratio"))
    if error > 1e-5 or not np.isfinite(returns).all():
        raise AssertionError(f"{chosen}: ratio differs from 1 by {error}, returns {returns}")
    case = f"{scenario}/{actions}"
    return [
        Row(case, algorithm, "ratio_error", error),
        Row(case, algorithm, "seconds", time.perf_counter() - started),
    ]


def main() -> None:
    options = arguments(__doc__, "matrix")
    scenarios = sorted(SCENARIOS)
    cells = list(itertools.product(scenarios, ALGORITHMS, ACTIONS))
    if options.quick:  # every scenario and every algorithm once, actions in turn
        cells = [
            (name, ALGORITHMS[i % len(ALGORITHMS)], ACTIONS[i % 2])
            for i, name in enumerate(scenarios)
        ]
    rows: list[Row] = []
    for i, (scenario, algorithm, actions) in enumerate(cells):
        console.print(f"[dim]{i + 1}/{len(cells)} {scenario}, {algorithm}, {actions} …[/dim]")
        rows += cell(scenario, algorithm, actions)
    errors = {(r.case, r.subject): r.value for r in rows if r.metric == "ratio_error"}
    lines = [
        [case, *(f"{errors[case, a]:.0e}" if (case, a) in errors else "" for a in ALGORITHMS)]
        for case in dict.fromkeys(row.case for row in rows)
    ]
    table("all run; |ratio - 1| before the first update", ["scenario/actions", *ALGORITHMS], lines)
    write(options.json, rows)


if __name__ == "__main__":
    main()
