"""Random-action environment steps per second: native worlds, JaxMARL (vmapped), mpe2 (numpy).

All three play 25-step episodes with resets, in all twelve scenarios; JaxMARL has nine of them. The
JAX subjects carry everything that a step returns from step to step, so that XLA cannot remove any
of it; for the native worlds that includes the final observation, the global state and the masks,
which JaxMARL does not return. mpe2 steps one world at a time, so its figure does not depend on the
number of worlds.

Some scenarios are also played through the views that show jmarl's worlds to other libraries: by
JaxMARL's interface with the program that plays JaxMARL's world, by PettingZoo's with the code that
plays mpe2, and by Gymnasium's.
"""

import argparse
import json
import math
import statistics
from pathlib import Path

import jmarl
from benchmarks import env_subjects as subjects
from benchmarks.env_subjects import MPE2_STEPS, SCENARIOS, steps_per_run
from benchmarks.report import Row, arguments, console, interleaved, table, write

NOT_IN_JAXMARL = ("simple_formation", "simple_line", "collect_treasure")
WORLDS = (1, 64, 1024, 4096)
QUICK_WORLDS = (1024,)
QUICK_JAXMARL = ("simple_spread",)  # its programs take long to compile
# view → scenario → numbers of worlds
VIEWED = {
    "jaxmarl_view": dict.fromkeys(("simple_spread", "simple_tag"), (64, 1024, 4096)),
    "pettingzoo_view": dict.fromkeys(("simple_spread", "simple_tag"), (1,)),
    "gymnasium_view": {"simple": (64, 1024, 4096)},
}
BESIDE = {"jaxmarl_view": "jaxmarl", "pettingzoo_view": "mpe2", "gymnasium_view": "mpe2"}
ROUNDS = 7


def views_of(scenario: str, num_envs: int) -> tuple[str, ...]:
    return tuple(view for view, known in VIEWED.items() if num_envs in known.get(scenario, ()))


def measure(
    scenario: str, num_envs: int, with_jaxmarl: bool, views: tuple[str, ...] = ()
) -> list[Row]:
    compiled = {"native": subjects.native(scenario, num_envs)}
    if with_jaxmarl:
        compiled["jaxmarl"] = subjects.jaxmarl(scenario, num_envs)
    if "jaxmarl_view" in views:
        compiled["jaxmarl_view"] = subjects.vmapped(
            jmarl.to_jaxmarl(subjects.made(scenario)), num_envs
        )
    runs = {name: program.run for name, program in compiled.items()} | {
        "mpe2": subjects.mpe2(scenario)
    }
    if "pettingzoo_view" in views:
        runs["pettingzoo_view"] = subjects.parallel(jmarl.to_pettingzoo(subjects.made(scenario)))
    if "gymnasium_view" in views:
        runs["gymnasium_view"] = subjects.vector(
            jmarl.to_gymnasium(subjects.made(scenario), num_envs)
        )
    steps = dict.fromkeys(runs, steps_per_run(num_envs) * num_envs)
    steps |= dict.fromkeys(("mpe2", "pettingzoo_view"), MPE2_STEPS)
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


def view_lines(rows: list[Row]) -> list[list[str]]:
    """One table line per case and view."""
    rate = {(row.case, row.subject): row.value for row in rows if row.metric == "steps_per_s"}
    shown = []
    for (case, view), own in rate.items():
        if view in BESIDE:
            other = rate.get((case, BESIDE[view]))
            beside = ["", ""] if other is None else [f"{other:,.0f}", f"{own / other:,.1f}×"]
            shown.append([case, view, f"{own:,.0f}", f"{rate[case, 'native']:,.0f}", *beside])
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
            rows += measure(scenario, num_envs, scenario in known, views_of(scenario, num_envs))
    order = list(SCENARIOS)
    rows.sort(key=lambda row: order.index(row.case.partition("/")[0]))
    columns = ["scenario/worlds", "native", "jaxmarl", "mpe2", "÷ jaxmarl", "÷ mpe2"]
    columns += ["per agent, ÷ spread", "native compiles (s)", "jaxmarl compiles (s)"]
    table(
        f"environment steps per second, median of {ROUNDS} interleaved runs", columns, lines(rows)
    )
    columns = ["scenario/worlds", "view", "steps/s", "native", "the library's world", "÷ library's"]
    table("steps per second through the views, in the same runs", columns, view_lines(rows))
    write(options.json, rows)
    plot(rows, options.json.with_suffix(".png"))


if __name__ == "__main__":
    main()
