"""Environment steps per second of whole training on simple_spread, compared with PyTorch.

    python -m benchmarks.throughput [--quick] [--json PATH]

Every subject runs in its own process; they take turns of some updates each, and figures are
medians. `roofline` is the FLOP rate of the algorithm (`benchmarks.flops`) relative to that of large
matmuls on this machine, measured in the same turns.
"""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.flops import per_step
from benchmarks.report import Row, arguments, console, table, write
from benchmarks.throughput_subjects import GEMM, serve

TORCH = ("torch_subprocess", "torch_vectorised")
LARGE = (1024, 4096)  # worlds
AGENTS = (10, 30)  # the other cases have three
ROUNDS = 5
LONG = 6.0  # seconds; longer turns are measured fewer times
FEW_ROUNDS = 3
MOST_MPE2 = 1024  # worlds: beyond, a single rollout of mpe2 takes a minute
REFERENCE: dict[str, Any] = {"ppo": {"epochs": 10, "num_minibatches": 1}}
MAT: dict[str, Any] = REFERENCE | {"algorithm": "mat", "net": {"n_embd": 64}}

# JaxMARL's own configurations of IPPO and of MAPPO with a GRU
JAXMARL_PPO: dict[str, Any] = {
    **{"epochs": 4, "num_minibatches": 4, "gamma": 0.99, "value_coef": 0.5, "max_grad_norm": 0.5},
    **{"value_loss": "squared", "value_norm": "none", "reward": "individual"},
    **{"advantage_norm": "minibatch", "advantage_eps": 1e-8},
}
JAXMARL_IPPO: dict[str, Any] = {
    "algorithm": "ippo",
    "rollout_length": 128,
    "net": {
        **{"hidden": (64, 64), "activation": "tanh", "gain": 2**0.5},
        **{"input_norm": False, "layer_norm": False},
    },
    "ppo": JAXMARL_PPO,
}
JAXMARL_GRU: dict[str, Any] = {
    "algorithm": "rmappo",
    "rollout_length": 128,
    "net": {
        **{"hidden": (128,), "head_hidden": (128,), "agent_id": "obs"},
        **{"input_norm": False, "layer_norm": False},
    },
    "ppo": JAXMARL_PPO,
}

Case = tuple[dict[str, Any], tuple[str, ...]]  # (jmarl's options, subjects)


def cases(quick: bool) -> dict[str, Case]:
    """`algorithm/worlds`, JaxMARL's shapes, and MAT with more agents; the slowest are last, so that
    an interrupted run has most of them."""
    algorithms = ("mat", "mappo") if quick else ("mat", "mappo", "rmappo", "ippo")

    def reference(worlds: tuple[int, ...]) -> dict[str, Case]:
        return {
            f"{algorithm}/{count}": (
                (MAT if algorithm == "mat" else REFERENCE | {"algorithm": algorithm})
                | {"num_envs": count},
                ("jmarl", *(TORCH if count <= MOST_MPE2 else TORCH[1:])),
            )
            for count in worlds
            for algorithm in algorithms
        }

    ippo = {
        f"ippo_jaxmarl/{count}": (JAXMARL_IPPO | {"num_envs": count}, ("jmarl",))
        for count in (1024, 16)
    }
    if quick:
        return reference((128, 16)) | ippo
    gru = {"rmappo_jaxmarl/256": (JAXMARL_GRU | {"num_envs": 256}, ("jmarl",))}
    many_agents = {
        f"mat_agents/{agents}": (
            MAT | {"num_envs": 128, "env_options": {"num_agents": agents}},
            ("jmarl", "torch_vectorised"),
        )
        for agents in AGENTS
    }
    return reference((128,)) | ippo | gru | reference((16, 1)) | many_agents | reference(LARGE)


@contextmanager
def process(subject: str, options: dict[str, Any]) -> Iterator[Any]:
    """A subject's process; sending True requests a turn."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    child = spawn.Process(target=serve, args=(there, subject, options))
    child.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        child.join(5)
        child.kill()


def measure(case: str, options: dict[str, Any], subjects: tuple[str, ...], peak: Any) -> list[Row]:
    """Start the subjects one after the other, then let them take turns."""
    rows, pipes, stack = [], {}, []
    try:
        for subject in subjects:
            opened = process(subject, options)
            pipes[subject] = opened.__enter__()
            stack.append(opened)
            about = pipes[subject].recv()
            rows += [Row(case, subject, name, value) for name, value in about.items()]
        times = _take_turns({"gemm": peak, **pipes})
    finally:
        for opened in stack:
            opened.__exit__(None, None, None)
    return rows + figures(case, options, times)


def _take_turns(pipes: dict[str, Any]) -> dict[str, list[dict[str, float]]]:
    times: dict[str, list[dict[str, float]]] = {name: [] for name in pipes}
    rounds = ROUNDS
    turn = -1  # the first turn is not counted
    while turn < rounds:
        begin = time.perf_counter()
        for name, pipe in pipes.items():
            pipe.send(True)
            taken = pipe.recv()
            if turn >= 0:
                times[name].append(taken)
        if time.perf_counter() - begin > LONG * (len(pipes) - 1):
            rounds = FEW_ROUNDS
        turn += 1
    return times


def figures(
    case: str, options: dict[str, Any], times: dict[str, list[dict[str, float]]]
) -> list[Row]:
    """Medians over the turns."""
    from jmarl.algorithms.build import make_env
    from jmarl.config.train_config import build

    config = build(options | {"total_updates": 1})
    steps, spec = config.steps_per_update, make_env(config).spec
    median = {
        (subject, part): statistics.median(turn[part] for turn in turns)
        for subject, turns in times.items()
        for part in turns[0]
    }
    peak = 2 * GEMM**3 / median.pop(("gemm", "whole"))
    rows = [Row(case, "gemm", "gflops", peak / 1e9)]
    for (subject, part), taken in median.items():
        rows.append(Row(case, subject, f"{part}_s", taken))
        if part == "whole":
            rows.append(Row(case, subject, "steps_per_s", steps / taken))
            flops = per_step(config, spec) * steps / taken
            rows.append(Row(case, subject, "roofline", flops / peak))
            rows.append(Row(case, subject, "turns", len(times[subject])))
    return rows


def lines(rows: list[Row]) -> list[list[str]]:
    """One line per case and subject; ratios are jmarl's speed relative to the subject's."""
    value = {(row.case, row.subject, row.metric): row.value for row in rows}
    made = []
    for case, subject in dict.fromkeys((r.case, r.subject) for r in rows if r.subject != "gemm"):

        def of(metric: str, case: str = case, subject: str = subject) -> float:
            return value[case, subject, metric]

        ratio = value[case, "jmarl", "steps_per_s"] / of("steps_per_s")
        compiled = value.get((case, subject, "compile_s"))
        made.append(
            [
                case,
                subject,
                f"{of('steps_per_s'):,.0f}",
                f"{ratio:.1f}×",
                f"{of('rollout_s') / of('whole_s'):.0%}",
                f"{of('roofline'):.0%}",
                "" if compiled is None else f"{compiled:.1f}",
                f"{of('first_update_s'):.1f}",
                f"{of('peak_mb'):,.0f}",
                f"{of('training_mb'):,.0f}",
            ]
        )
    return made


COLUMNS = [
    *("case", "subject", "steps/s", "jmarl is", "of it rollout", "roofline"),
    *("compiles (s)", "first update (s)", "memory (MB)", "training"),
]


def plot(rows: list[Row], path: Path) -> None:
    """Steps per second against worlds, a panel per algorithm."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    speeds = [row for row in rows if row.metric == "steps_per_s"]
    algorithms = list(dict.fromkeys(row.case.split("/")[0] for row in speeds))
    algorithms = [name for name in algorithms if "_" not in name]
    if not algorithms:
        return
    panels, axes = plt.subplots(
        1, len(algorithms), figsize=(3.2 * len(algorithms), 3.2), sharey=True, squeeze=False
    )
    for axis, algorithm in zip(axes[0], algorithms, strict=True):
        for subject in ("jmarl", *reversed(TORCH)):
            points = [
                (int(row.case.split("/")[1]), row.value)
                for row in speeds
                if row.subject == subject and row.case.split("/")[0] == algorithm
            ]
            if points:
                axis.plot(*zip(*sorted(points), strict=True), "o-", label=subject)
        axis.set(title=algorithm, xscale="log", yscale="log", xlabel="worlds")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("steps per second, training")
    axes[0][-1].legend(fontsize=8)
    panels.tight_layout()
    panels.savefig(path, dpi=130)
    console.print(f"picture: {path}")


def _more_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", metavar="CASE", help="measure only these cases")


def main() -> None:
    options = arguments(__doc__, "throughput", _more_options)
    chosen = cases(options.quick)
    unknown = [name for name in options.only or () if name not in chosen]
    if unknown:
        console.print(f"--only: no case {unknown[0]!r}; there are {', '.join(chosen)}.")
        raise SystemExit(2)
    rows: list[Row] = []
    with (
        process("gemm", {}) as peak,
        suppress(KeyboardInterrupt),
    ):  # an interrupted run shows fewer cases
        peak.recv()
        for case in options.only or chosen:
            console.print(f"[dim]{case} …[/dim]")
            rows += measure(case, *chosen[case], peak)
            write(options.json, rows)
    table("training, steps per second", COLUMNS, lines(rows))
    plot(rows, options.json.with_suffix(".png"))


if __name__ == "__main__":
    main()
