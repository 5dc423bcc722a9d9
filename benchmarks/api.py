"""Training as a function: `jax.jit(jax.vmap(train))` of a user, the library's population, and runs
one after the other.

Every subject trains the same eight seeds. `vmap`: the function of `jmarl.make_train` under
`jax.jit(jax.vmap(…))`; `population`: what `python -m jmarl.train --seeds 8` trains with, without
evaluations and files; `loop`: eight times the program of a single run of the command, one run
after the other; `function loop`: `jax.jit(train)`, called once per seed; `plain vmap`: `jax.vmap`
of a single run without a rule of its own, as it would be without `make_train`. Each number of CPU
devices is a process of its own. `steps_per_cpu_s` counts the seconds that cores have worked, which
other processes on the machine change little. Compilation does not use jax's cache on disk.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import jmarl
from benchmarks.report import Row, arguments, console, others, table, write
from jmarl.config.train_config import Config, build
from jmarl.execution.cpu_devices import FORCED
from jmarl.execution.members import Members
from jmarl.execution.population import Population, make_population

SEEDS = 8
CASES = {
    "mappo_128": {"algorithm": "mappo", "num_envs": 128, "total_updates": 5},
    "mappo_4": {"algorithm": "mappo", "num_envs": 4, "total_updates": 60},
}
QUICK = ("mappo_4",)
ROUNDS = 2
INSIDE = "JMARL_BENCHMARK_API"  # the case and the devices, in the process that measures them

Training = Callable[[], Any]  # of all seeds, to the end


def configured(case: str, seeds: int) -> Config:
    shared = {"env": "mpe/simple_spread", "seeds": seeds, "eval_episodes": 8}
    return build(shared | {"ppo": {"num_minibatches": 1}} | CASES[case])


def keys() -> jax.Array:
    return jnp.stack([jax.random.key(seed) for seed in range(SEEDS)])


def vmapped(case: str) -> Training:
    train = jax.jit(jax.vmap(jmarl.make_train(configured(case, 1))))
    return partial(_run, train.lower(keys()).compile(), keys())


def function_loop(case: str) -> Training:
    train = jax.jit(jmarl.make_train(configured(case, 1))).lower(jax.random.key(0)).compile()
    return lambda: [_run(train, key) for key in keys()]


def plainly_vmapped(case: str) -> Training:
    function = jmarl.make_train(configured(case, 1))
    trainer, hyper = function.trainer, function.hyper

    def train(key: jax.Array) -> Any:
        state = trainer.init(jax.random.split(key)[0])
        return lax.scan(
            lambda s, _: trainer.step_alike(s, hyper), state, length=trainer.total_updates
        )

    return partial(_run, jax.jit(jax.vmap(train)).lower(keys()).compile(), keys())


def population(case: str) -> Training:
    config = configured(case, SEEDS)
    return partial(_advance, _compiled(make_population(config)), config.num_updates)


def loop(case: str) -> Training:
    config = configured(case, 1)
    run = _compiled(make_population(config))

    def train() -> None:
        for seed in range(SEEDS):
            run.seeds = Members.alike((seed,), run.hyper).seeds
            _advance(run, config.num_updates)

    return train


SUBJECTS: dict[str, Callable[[str], Training]] = {
    "vmap": vmapped,
    "population": population,
    "loop": loop,
    "function loop": function_loop,
    "plain vmap": plainly_vmapped,
}


def _run(program: Callable[..., Any], *given: Any) -> Any:
    return jax.block_until_ready(program(*given))


def _compiled(made: Population) -> Population:
    made.compile()
    return made


def _advance(made: Population, updates: int) -> None:
    made.init()
    made.read(made.advance(updates))


def measure(case: str) -> dict[str, dict[str, float]]:
    """In turns, so that a busy machine disturbs all alike; the best of several rounds counts."""
    jax.config.update("jax_enable_compilation_cache", False)
    trainings, figures = {}, {}
    for name, make in SUBJECTS.items():
        start = time.perf_counter()
        trainings[name] = make(case)
        figures[name] = {"compile_s": time.perf_counter() - start}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in SUBJECTS}
    for _ in range(ROUNDS):
        for name, train in trainings.items():
            start, worked = time.perf_counter(), time.process_time()
            train()
            times[name].append((time.perf_counter() - start, time.process_time() - worked))
    config = configured(case, 1)
    steps = SEEDS * config.num_updates * config.steps_per_update
    for name, own in times.items():
        elapsed, worked = map(min, zip(*own, strict=True))
        figures[name] |= {"steps_per_s": steps / elapsed, "steps_per_cpu_s": steps / worked}
    return figures


def measured_apart(case: str, devices: int) -> dict[str, dict[str, float]]:
    """In a process with so many CPU devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --{FORCED}={devices}"
    env = os.environ | {"XLA_FLAGS": flags, INSIDE: case}
    command = [sys.executable, "-m", "benchmarks.api"]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.decode().splitlines()[-1])


def _choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", nargs="+", choices=CASES, help="measure only these anew")


def main() -> None:
    options = arguments(__doc__, "api", _choice)
    cases = options.cases or (QUICK if options.quick else tuple(CASES))
    rows, lines = others(options.json, cases), []
    for case in cases:
        for devices in (1, 2):
            found = measured_apart(case, devices)
            place = f"{case}/devices/{devices}"
            rows += [Row(place, s, m, x) for s, own in found.items() for m, x in own.items()]
            cells = [
                f"{x['steps_per_s']:,.0f}, {x['steps_per_cpu_s']:,.0f} ({x['compile_s']:.0f} s)"
                for x in found.values()
            ]
            lines.append([case, str(devices), *cells])
            console.print(f"{place}: {', '.join(cells)}")
    title = f"{SEEDS} seeds together: steps/s, steps per second of a core (compilation)"
    table(title, ["case", "devices", *SUBJECTS], lines)
    write(options.json, rows, seeds=SEEDS, cases=CASES)


if __name__ == "__main__":
    if INSIDE in os.environ:
        print(json.dumps(measure(os.environ[INSIDE])))
    else:
        main()
