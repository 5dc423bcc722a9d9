"""Pictures of a sweep: what each option does, what pairs do together, how the best learn."""

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, NullFormatter, NullLocator

from jmarl.config.formatting import shown
from jmarl.presentation.figures import COLOURS, new_figure, save
from jmarl.stats import iqm
from jmarl.sweeps.plan import Plan
from jmarl.sweeps.results import Ranked, Ranking, Scored, evaluations

CELLS = 12  # most values of an option that are drawn apart, as a grid
BINS = 6  # of more values, for the line through them
CURVES = 5  # settings whose learning is drawn
WIDE = 10  # largest / smallest from which an axis is logarithmic
POINT, LINE = "#56b4e9", "#222222"
SCORE = "greedy return per episode"


class Axis(NamedTuple):
    """Where values of one option go."""

    name: str
    values: list[Any]  # distinct, in order
    kind: str  # "linear", "log" or "category"

    def at(self, value: Any) -> float:
        return float(self.values.index(value)) if self.kind == "category" else float(value)

    def apply(self, axes: Axes, which: str) -> None:
        axis = axes.xaxis if which == "x" else axes.yaxis
        axis.set_label_text(self.name)
        if self.kind == "log":
            (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        few = len(self.values) <= CELLS
        if self.kind == "category" or (few and self._apart()):
            axis.set_ticks([self.at(v) for v in self.values], [shown(v) for v in self.values])
            axis.set_minor_locator(NullLocator())
            axis.set_minor_formatter(NullFormatter())
        if which == "x" and few and sum(len(shown(v)) for v in self.values) > 50:
            axes.tick_params("x", rotation=30)

    def _apart(self) -> bool:
        """Whether labels at the values themselves do not run into each other."""
        places = np.array([self.at(value) for value in self.values])
        places = np.log(places) if self.kind == "log" else places
        span = places[-1] - places[0]
        return span == 0 or bool(np.diff(places).min() > span / CELLS)


def write_plots(path: Path, plan: Plan, ranking: Ranking) -> list[Path]:
    """Into `path/plots`; what all failed in is not drawn."""
    scored = [one for one in ranking.members if not one.failed]
    if not scored:
        return []
    folder = path / "plots"
    folder.mkdir(exist_ok=True)
    axes = [_axis(name, scored) for name in plan.names]
    made = [_marginal(folder / f"marginal_{axis.name}.png", axis, scored) for axis in axes]
    made += [
        _pair(folder / f"pair_{x.name}_{y.name}.png", x, y, scored)
        for x, y in itertools.combinations(axes, 2)
    ]
    made.append(_curves(folder / "curves.png", plan, ranking, evaluations(path, plan)))
    return made


def _axis(name: str, scored: Sequence[Scored]) -> Axis:
    found = {one.member.settings[name] for one in scored}
    if not all(_number(value) for value in found):
        return Axis(name, sorted(found, key=_order), "category")
    values = sorted(found)
    positive = [value for value in values if value > 0]
    wide = bool(positive) and positive[-1] / positive[0] >= WIDE
    if not wide:
        return Axis(name, values, "linear")
    if len(positive) == len(values):
        return Axis(name, values, "log")
    return Axis(name, values, "category" if len(values) <= CELLS else "linear")  # 0 has no log


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _order(value: Any) -> tuple[Any, ...]:
    """Widths by size, everything else by name."""
    return (0, value) if isinstance(value, tuple) else (1, str(value))


def _furthest(scored: Sequence[Scored]) -> list[Scored]:
    """Without members that halving stopped: their returns are of another age."""
    progress = max(one.progress for one in scored)
    return [one for one in scored if one.progress == progress]


def _middle(scored: Sequence[Scored]) -> float:
    return float(iqm(np.array([one.score for one in scored])))


def _marginal(path: Path, axis: Axis, scored: Sequence[Scored]) -> Path:
    """The score against one option: a point per member, a line through the middle of them."""
    figure, axes = new_figure()
    last = _furthest(scored)
    early = [one for one in scored if one.progress < last[0].progress]

    def points(members: Sequence[Scored], **looks: Any) -> None:
        x = [axis.at(one.member.settings[axis.name]) for one in members]
        axes.scatter(x, [one.score for one in members], s=26, linewidths=1, **looks)

    if early:
        points(early, facecolors="none", edgecolors="#bbbbbb", label="stopped early")
    points(last, color=POINT, alpha=0.7, label="a member")
    x, y = _line(axis, last)
    joined = "-" if all(_number(value) for value in axis.values) else ""
    axes.plot(x, y, color=LINE, linestyle=joined, marker="_", markersize=14, label="IQM")
    axis.apply(axes, "x")
    axes.set_ylabel(SCORE)
    axes.grid(axis="y", alpha=0.3)
    axes.margins(x=0.08)
    if axis.kind == "category":
        axes.set_xlim(-0.5, len(axis.values) - 0.5)
    figure.legend(loc="outside upper right", ncols=3, frameon=False)
    return save(figure, path)


def _line(axis: Axis, scored: Sequence[Scored]) -> tuple[list[float], list[float]]:
    """The middle at each value; of many values, in parts of equally many members."""
    ordered = sorted(scored, key=lambda one: axis.at(one.member.settings[axis.name]))
    at = [axis.at(one.member.settings[axis.name]) for one in ordered]
    if len(set(at)) > CELLS:
        parts = [list(part) for part in np.array_split(np.arange(len(at)), BINS)]
    else:
        parts = [list(part) for _, part in itertools.groupby(range(len(at)), key=at.__getitem__)]
    x = [float(np.median([at[i] for i in part])) for part in parts]
    return x, [_middle([ordered[i] for i in part]) for part in parts]


def _pair(path: Path, x: Axis, y: Axis, scored: Sequence[Scored]) -> Path:
    """Two options together: a cell for each pair of values if most pairs were tried, otherwise a
    point for each setting."""
    last = _furthest(scored)
    cells: dict[tuple[Any, Any], list[Scored]] = {}
    for one in last:
        settings = one.member.settings
        cells.setdefault((settings[x.name], settings[y.name]), []).append(one)
    middles = {pair: _middle(members) for pair, members in cells.items()}
    few = max(len(x.values), len(y.values)) <= CELLS
    if few and 2 * len(cells) >= len(x.values) * len(y.values):
        return _heat_map(path, x, y, middles)
    return _scatter(path, x, y, middles)


def _heat_map(path: Path, x: Axis, y: Axis, middles: dict[tuple[Any, Any], float]) -> Path:
    columns, rows = len(x.values), len(y.values)
    figure, axes = new_figure(max(4.8, 2.2 + 0.8 * columns), max(3.6, 1.4 + 0.55 * rows))
    table = np.array([[middles.get((a, b), math.nan) for a in x.values] for b in y.values])
    axes.set_facecolor("#dddddd")  # where nothing was tried
    image = axes.imshow(table, origin="lower", aspect="auto", cmap="viridis")
    middle = (np.nanmin(table) + np.nanmax(table)) / 2
    for (row, column), value in np.ndenumerate(table):
        if not math.isnan(value):
            colour = "white" if value <= middle else "black"
            text = f"{value:#.4g}".rstrip(".")
            axes.text(column, row, text, ha="center", va="center", color=colour, size=8)
    x._replace(kind="category").apply(axes, "x")
    y._replace(kind="category").apply(axes, "y")
    figure.colorbar(image, ax=axes, label=f"IQM of {SCORE}")
    return save(figure, path)


def _scatter(path: Path, x: Axis, y: Axis, middles: dict[tuple[Any, Any], float]) -> Path:
    figure, axes = new_figure()
    order = sorted(middles, key=middles.__getitem__)  # the best on top
    drawn = axes.scatter(
        [x.at(a) for a, _ in order],
        [y.at(b) for _, b in order],
        c=[middles[pair] for pair in order],
        s=55,
        cmap="viridis",
        edgecolors="white",
        linewidths=0.6,
    )
    x.apply(axes, "x")
    y.apply(axes, "y")
    axes.grid(alpha=0.25)
    figure.colorbar(drawn, ax=axes, label=f"IQM of {SCORE}")
    return save(figure, path)


def _curves(
    path: Path, plan: Plan, ranking: Ranking, lines: Sequence[list[dict[str, Any]]]
) -> Path:
    """Greedy returns while the best settings learned: mean and range over the seeds that went
    furthest."""
    best = [one for one in ranking.settings if not math.isnan(one.iqm)][:CURVES]
    height = 4.2 + 0.25 * len(best)
    figure, axes = new_figure(7.2, height)
    for one, colour in zip(best, COLOURS, strict=False):
        seeds = [
            lines[seed.member.index]
            for seed in ranking.members
            if seed.member.setting == one.setting and seed.steps == one.steps and not seed.failed
        ]
        steps, mean, low, high = _over_seeds(seeds)
        axes.plot(steps, mean, color=colour, label=_label(one, plan.names))
        axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("steps of single worlds")
    axes.set_ylabel(SCORE)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    title = "mean and range over seeds, the best first"
    figure.legend(loc="outside lower center", ncols=1, frameon=False, title=title, fontsize=9)
    return save(figure, path)


def _over_seeds(seeds: Sequence[list[dict[str, Any]]]) -> tuple[list[int], Any, Any, Any]:
    """Mean, least and most at each count of steps, over the seeds that got there."""
    found: dict[int, list[float]] = {}
    for lines in seeds:
        for line in lines:
            if line.get("eval/return_mean") is not None:
                found.setdefault(line["steps"], []).append(line["eval/return_mean"])
    steps = sorted(found)

    def each(figure: Callable[[list[float]], Any]) -> list[float]:
        return [float(figure(found[step])) for step in steps]

    return steps, each(np.mean), each(min), each(max)


def _label(one: Ranked, names: Sequence[str]) -> str:
    parts = [f"{name.rpartition('.')[2]}={shown(one.settings[name])}" for name in names]
    return ", ".join(parts) or one.config.algorithm
