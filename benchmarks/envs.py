"""Random-action environment steps per second: native worlds, JaxMARL (vmapped), mpe2 (numpy).

All three play 25-step episodes with resets. The JAX subjects carry everything that a step hands
out from step to step, so that nothing is optimised away; for the native worlds that includes the
final observation, the global state and the masks, which JaxMARL does not give. mpe2 steps one
world at a time, so its figure does not depend on the number of worlds.
"""

import importlib
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

SCENARIOS = {
    "simple_spread": "simple_spread_v3",
    "simple_tag": "simple_tag_v3",
    "simple_reference": "simple_reference_v3",
    "simple_speaker_listener": "simple_speaker_listener_v4",
}
WORLDS = (1, 64, 1024, 4096, 16384)
QUICK_WORLDS = (1024, 4096)
EPISODE_LENGTH = 25
ROUNDS = 7
MPE2_STEPS = 100


def steps_per_run(num_envs: int) -> int:
    """Whole episodes; enough of them to time, few enough to wait for."""
    return EPISODE_LENGTH * max(2, min(40, 2048 // num_envs))


def sample_actions(key, num_envs: int, choices: np.ndarray):
    """[E, N] integers, agent i's from 0 … choices[i]-1; the same code for both JAX subjects."""
    unit = jax.random.uniform(key, (num_envs, len(choices)))
    return jnp.floor(unit * choices[None]).astype(jnp.int32)


def play(num_envs: int, choices: np.ndarray, reset, step) -> Compiled:
    """A program that resets, plays random actions and keeps the last of everything."""

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
    # JaxMARL's episodes last one step more than max_steps
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


def measure(scenario: str, num_envs: int) -> list[Row]:
    compiled = {"native": native(scenario, num_envs), "jaxmarl": jaxmarl(scenario, num_envs)}
    runs = {name: program.run for name, program in compiled.items()} | {"mpe2": mpe2(scenario)}
    steps = dict.fromkeys(compiled, steps_per_run(num_envs) * num_envs) | {"mpe2": MPE2_STEPS}
    times = interleaved(runs, ROUNDS)
    case = f"{scenario}/{num_envs}"
    rates = [
        Row(case, name, "steps_per_s", steps[name] / statistics.median(taken))
        for name, taken in times.items()
    ]
    return rates + [Row(case, n, "compile_s", p.compile_s) for n, p in compiled.items()]


def lines(rows: list[Row]) -> list[list[str]]:
    """One table line per case."""
    value = {(row.case, row.subject, row.metric): row.value for row in rows}
    shown = []
    for case in dict.fromkeys(row.case for row in rows):
        rate = {s: value[case, s, "steps_per_s"] for s in ("native", "jaxmarl", "mpe2")}
        build = {s: value[case, s, "compile_s"] for s in ("native", "jaxmarl")}
        shown.append(
            [
                case,
                *(f"{rate[s]:,.0f}" for s in rate),
                f"{rate['native'] / rate['jaxmarl']:.1f}×",
                f"{rate['native'] / rate['mpe2']:,.0f}×",
                *(f"{build[s]:.1f}" for s in build),
            ]
        )
    return shown


def plot(rows: list[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(SCENARIOS), figsize=(14, 3.6), sharey=True)
    for axis, scenario in zip(axes, SCENARIOS, strict=True):
        for subject, marker in (("native", "o"), ("jaxmarl", "s"), ("mpe2", "^")):
            points = [
                (int(row.case.partition("/")[2]), row.value)
                for row in rows
                if row.case.startswith(f"{scenario}/")
                and (row.subject, row.metric) == (subject, "steps_per_s")
            ]
            axis.loglog(*zip(*points, strict=True), marker=marker, label=subject)
        axis.set(title=scenario, xlabel="worlds")
        axis.grid(True, which="major", alpha=0.3)
    axes[0].set_ylabel("environment steps / s")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    console.print(f"plot: {path}")


def main() -> None:
    options = arguments(__doc__, "envs")
    rows: list[Row] = []
    for scenario in SCENARIOS:
        for num_envs in QUICK_WORLDS if options.quick else WORLDS:
            console.print(f"[dim]{scenario}, {num_envs} worlds …[/dim]")
            rows += measure(scenario, num_envs)
    columns = ["scenario/worlds", "native", "jaxmarl", "mpe2", "÷ jaxmarl", "÷ mpe2"]
    columns += ["native compiles (s)", "jaxmarl compiles (s)"]
    table(
        f"environment steps per second, median of {ROUNDS} interleaved runs", columns, lines(rows)
    )
    write(options.json, rows)
    plot(rows, options.json.with_suffix(".png"))


if __name__ == "__main__":
    main()
