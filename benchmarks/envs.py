"""Random-action environment steps per second: native worlds, JaxMARL (vmapped), mpe2 (numpy).

All three play 25-step episodes with resets, in all twelve scenarios; JaxMARL has nine of them. The
JAX subjects carry everything that a step returns from step to step, so that XLA cannot remove any
of it; for the native worlds that includes the final observation, the global state and the masks,
which JaxMARL does not return. mpe2 steps one world at a time, so its figure does not depend on the
number of worlds.
"""

import argparse
import importlib
import json
import math
import statistics
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jmarl
from benchmarks.report import (
    Compiled,
    Row,
    arguments,
    compile_program,
    console,
    interleaved,
    table,
    write,
)
from jmarl.envs.adapters.jaxmarl import import_jaxmarl
from jmarl.evaluation.mpe2 import VERSIONS

SCENARIOS = VERSIONS  # → mpe2's modules, whose names JaxMARL's worlds have too
NOT_IN_JAXMARL = ("simple_formation", "simple_line", "collect_treasure")
WORLDS = (1, 64, 1024, 4096)
QUICK_WORLDS = (1024,)
QUICK_JAXMARL = ("simple_spread",)  # its programs take long to compile
EPISODE_LENGTH = 25
ROUNDS = 7
MPE2_STEPS = 100


def steps_per_run(num_envs: int) -> int:
    """Whole episodes: enough for timing, few enough to finish soon."""
    return EPISODE_LENGTH * max(2, min(40, 2048 // num_envs))


def sample_actions(key, num_envs: int, choices: np.ndarray):
    """[E, N] integers, those of agent i in 0 … choices[i]-1; the same code for both JAX
    subjects."""
    unit = jax.random.uniform(key, (num_envs, len(choices)))
    return jnp.floor(unit * choices[None]).astype(jnp.int32)


def play(num_envs: int, choices: np.ndarray, reset, step) -> Compiled:
    """A program that resets, plays random actions and returns the last result of `step`."""

    def program(key):
        reset_key, key = jax.random.split(key)

        def body(carry, key):
            act_key, step_key = jax.random.split(key)
            return step(step_key, carry, sample_actions(act_key, num_envs, choices)), None

        keys = jax.random.split(key, steps_per_run(num_envs))
        return lax.scan(body, reset(reset_key), keys)[0]

    return compile_program(program, jax.random.key(0))


def native(scenario: str, num_envs: int) -> Compiled:
    env = jmarl.make(f"mpe/{scenario}", actions="discrete", episode_length=EPISODE_LENGTH)
    choices = np.array([space.size for space in env.spec.action_spaces])

    def step(key, carry, action):
        state, _ = carry
        return env.step(key, state, action)

    return play(num_envs, choices, lambda key: env.reset(key, num_envs), step)


def jaxmarl(scenario: str, num_envs: int) -> Compiled:
    # JaxMARL's episodes last one step longer than max_steps.
    env = import_jaxmarl().make(f"MPE_{SCENARIOS[scenario]}", max_steps=EPISODE_LENGTH - 1)
    choices = np.array([env.action_space(agent).n for agent in env.agents])

    def step(key, carry, action):
        actions = {agent: action[:, i] for i, agent in enumerate(env.agents)}
        keys = jax.random.split(key, num_envs)
        obs, state, reward, done, _ = jax.vmap(env.step)(keys, carry[0], actions)
        return state, obs, reward, done

    def reset(key):
        obs, state = jax.vmap(env.reset)(jax.random.split(key, num_envs))
        still = jnp.zeros((num_envs, len(env.agents)), jnp.int32)
        _, _, *given = jax.eval_shape(lambda: step(jax.random.key(0), (state,), still))
        return state, obs, *jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), given)

    return play(num_envs, choices, reset, step)


def mpe2(scenario: str):
    """Plays MPE2_STEPS steps in mpe2's own parallel environment."""
    env = importlib.import_module(f"mpe2.{SCENARIOS[scenario]}").parallel_env(
        max_cycles=EPISODE_LENGTH
    )
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    choices = {agent: env.action_space(agent).n for agent in env.possible_agents}

    def run():
        for _ in range(MPE2_STEPS):
            if not env.agents:
                env.reset()
            env.step({agent: int(rng.integers(n)) for agent, n in choices.items()})

    return run


def measure(scenario: str, num_envs: int, with_jaxmarl: bool) -> list[Row]:
    compiled = {"native": native(scenario, num_envs)}
    if with_jaxmarl:
        compiled["jaxmarl"] = jaxmarl(scenario, num_envs)
    runs = {name: program.run for name, program in compiled.items()} | {"mpe2": mpe2(scenario)}
    steps = dict.fromkeys(compiled, steps_per_run(num_envs) * num_envs) | {"mpe2": MPE2_STEPS}
    times = interleaved(runs, ROUNDS)
    case = f"{scenario}/{num_envs}"
    rates = [
        Row(case, name, "steps_per_s", steps[name] / statistics.median(taken))
        for name, taken in times.items()
    ]
    return rates + [Row(case, n, "compile_s", p.compile_s) for n, p in compiled.items()]


def per_agent(case: str, rate: float) -> float:
    """Seconds of one step of one agent."""
    scenario = case.partition("/")[0]
    return 1 / (rate * jmarl.make(f"mpe/{scenario}").spec.num_agents)


def lines(rows: list[Row]) -> list[list[str]]:
    """One table line per case."""
    value = {(row.case, row.subject, row.metric): row.value for row in rows}
    shown = []
    for case in dict.fromkeys(row.case for row in rows):
        ours, theirs, original = (
            value.get((case, s, "steps_per_s")) for s in ("native", "jaxmarl", "mpe2")
        )
        assert ours is not None
        assert original is not None
        build = {s: value.get((case, s, "compile_s")) for s in ("native", "jaxmarl")}
        spread_case = f"simple_spread/{case.partition('/')[2]}"
        spread = value.get((spread_case, "native", "steps_per_s"))
        slower = spread and per_agent(case, ours) / per_agent(spread_case, spread)
        shown.append(
            [
                case,
                *("" if rate is None else f"{rate:,.0f}" for rate in (ours, theirs, original)),
                "" if theirs is None else f"{ours / theirs:.1f}×",
                f"{ours / original:,.0f}×",
                "" if slower is None else f"{slower:.1f}×",
                *("" if s is None else f"{s:.1f}" for s in build.values()),
            ]
        )
    return shown


def plot(rows: list[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = list(dict.fromkeys(row.case.partition("/")[0] for row in rows))
    figure, axes = plt.subplots(
        math.ceil(len(shown) / 4), 4, figsize=(14, 9), sharey=True, squeeze=False
    )
    for axis, scenario in zip(axes.flat, shown, strict=False):
        for subject, marker in (("native", "o"), ("jaxmarl", "s"), ("mpe2", "^")):
            points = [
                (int(row.case.partition("/")[2]), row.value)
                for row in rows
                if row.case.startswith(f"{scenario}/")
                and (row.subject, row.metric) == (subject, "steps_per_s")
            ]
            if points:
                axis.loglog(*zip(*points, strict=True), marker=marker, label=subject)
        axis.set(title=scenario, xlabel="worlds")
        axis.grid(True, which="major", alpha=0.3)
    for row_of_axes in axes:
        row_of_axes[0].set_ylabel("environment steps / s")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)
    console.print(f"plot: {path}")


def choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(SCENARIOS),
        metavar="SCENARIO",
        help="these scenarios; the figures of others stay as they are in the file",
    )


def measured_before(path: Path) -> list[Row]:
    """The figures in the file, if there is one."""
    if not path.exists():
        return []
    return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def main() -> None:
    options = arguments(__doc__, "envs", choice)
    chosen = options.only or list(SCENARIOS)
    before = measured_before(options.json) if options.only else []
    rows = [row for row in before if row.case.partition("/")[0] not in chosen]
    for scenario in chosen:
        known = QUICK_JAXMARL if options.quick else set(SCENARIOS) - set(NOT_IN_JAXMARL)
        for num_envs in QUICK_WORLDS if options.quick else WORLDS:
            console.print(f"[dim]{scenario}, {num_envs} worlds …[/dim]")
            rows += measure(scenario, num_envs, with_jaxmarl=scenario in known)
    order = list(SCENARIOS)
    rows.sort(key=lambda row: order.index(row.case.partition("/")[0]))
    columns = ["scenario/worlds", "native", "jaxmarl", "mpe2", "÷ jaxmarl", "÷ mpe2"]
    columns += ["per agent, ÷ spread", "native compiles (s)", "jaxmarl compiles (s)"]
    table(
        f"environment steps per second, median of {ROUNDS} interleaved runs", columns, lines(rows)
    )
    write(options.json, rows)
    plot(rows, options.json.with_suffix(".png"))


if __name__ == "__main__":
    main()
