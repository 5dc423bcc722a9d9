"""Learning curves of the torch trainers on simple_spread: greedy returns during training.

The settings are those of jmarl's presets `mat_long_simple_spread` and `mappo_simple_spread`, but
with a constant learning rate, 128 worlds for both and a smaller budget; the worlds are the
vectorised ones. Seconds are CPU time of training only, because the machine may be busy.
"""

import time
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.report import Row, arguments, console, table, write
from benchmarks.torch_baseline.spread import EPISODE_LENGTH, NUM_ACTIONS, VectorisedSpread
from benchmarks.torch_baseline.trainers import Settings, make_trainer

SUBJECT = "torch_vectorised"
RUNS = {
    "mat": Settings("mat", 128, epochs=5, num_minibatches=8, gamma=0.95),
    "mappo": Settings("mappo", 128, epochs=5, num_minibatches=4, gamma=0.95, hidden=(128, 128)),
}
UPDATES, QUICK_UPDATES = 96, 8
EVALUATIONS = 8
EPISODES = 512


class Point(NamedTuple):
    steps: int
    seconds: float
    greedy_return: float


@torch.inference_mode()
def random_return(num_agents: int, episodes: int) -> float:
    worlds = VectorisedSpread(episodes, num_agents, seed=0)
    worlds.reset()
    total = 0.0
    for _ in range(EPISODE_LENGTH):
        action = torch.randint(NUM_ACTIONS, (episodes, num_agents))
        total += float(worlds.step(action).reward.sum())
    return total / episodes


def learn(name: str, settings: Settings, updates: int) -> list[Point]:
    trainer = make_trainer(settings, "vectorised")
    per_update, every = settings.num_envs * settings.rollout_length, updates // EVALUATIONS
    points, spent = [Point(0, 0.0, trainer.evaluate(EPISODES))], 0.0
    for done in range(1, updates + 1):
        started = time.process_time()
        trainer.rollout()
        trainer.update()
        spent += time.process_time() - started
        if done % every == 0:
            points.append(Point(done * per_update, spent, trainer.evaluate(EPISODES)))
            console.print(
                f"{name}: {points[-1].steps:,} steps, {spent:.0f} cpu s, "
                f"return {points[-1].greedy_return:.1f}"
            )
    trainer.close()
    return points


def rows_of(curves: dict[str, list[Point]], random: float) -> list[Row]:
    rows = [Row("random", SUBJECT, "return_mean", random)]
    for name, points in curves.items():
        for point in points:
            case = f"{name}/{point.steps}"
            rows.append(Row(case, SUBJECT, "return_mean", point.greedy_return))
            rows.append(Row(case, SUBJECT, "cpu_seconds", point.seconds))
    return rows


def draw(curves: dict[str, list[Point]], random: float, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 3.5))
    for name, points in curves.items():
        steps = [point.steps / 1e3 for point in points]
        axis.plot(steps, [point.greedy_return for point in points], label=name)
    axis.axhline(random, color="grey", linestyle=":", label="random")
    axis.set_title("simple_spread, torch, vectorised worlds")
    axis.set_xlabel("thousand steps")
    axis.set_ylabel("greedy return")
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    console.print(f"curves: {path}")


def main() -> None:
    options = arguments(__doc__, "torch_baseline")
    torch.manual_seed(0)
    random = random_return(num_agents=3, episodes=4096)
    updates = QUICK_UPDATES if options.quick else UPDATES
    curves = {name: learn(name, settings, updates) for name, settings in RUNS.items()}
    lines = [
        [
            name,
            f"{random:.1f}",
            f"{points[0].greedy_return:.1f}",
            f"{points[-1].greedy_return:.1f}",
            f"{points[-1].steps:,}",
            f"{points[-1].seconds:.0f}",
        ]
        for name, points in curves.items()
    ]
    columns = ["", "random", "untrained", "trained", "steps", "cpu seconds"]
    table(f"greedy return in torch, mean of {EPISODES} episodes", columns, lines)
    write(
        options.json,
        rows_of(curves, random),
        torch={"version": torch.__version__, "threads": torch.get_num_threads()},
    )
    draw(curves, random, options.json.with_suffix(".png"))


if __name__ == "__main__":
    main()
