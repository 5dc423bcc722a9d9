"""Plots of a sweep: the effect of each option and of pairs of options, and learning curves."""

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
from jmarl.runs.files import PLOTS, member_name, read_greedy_evaluations
from jmarl.stats import iqm
from jmarl.sweeps.plan import Plan
from jmarl.sweeps.scores import Ranked, Ranking, Scored

CELLS = 12  # up to this many values of an option are drawn separately, as a grid
BINS = 6  # number of bins for the line through more values
CURVES = 5  # settings with a learning curve
WIDE = 10  # an axis is logarithmic if largest / smallest is at least this
POINT, LINE = "#56b4e9", "#222222"
SCORE = "greedy return per episode"


class Axis(NamedTuple):
    """The axis of one option."""

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
        if self.kind == "category" or (few and self._labels_fit()):
            axis.set_ticks([self.at(v) for v in self.values], [shown(v) for v in self.values])
            axis.set_minor_locator(NullLocator())
            axis.set_minor_formatter(NullFormatter())
        if which == "x" and few and sum(len(shown(v)) for v in self.values) > 50:
            axes.tick_params("x", rotation=30)

    def _labels_fit(self) -> bool:
        """Whether labels at the values do not overlap."""
        places = np.array([self.at(value) for value in self.values])
        places = np.log(places) if self.kind == "log" else places
        span = places[-1] - places[0]
        return span == 0 or bool(np.diff(places).min() > span / CELLS)


def write_plots(path: Path, plan: Plan, ranking: Ranking) -> list[Path]:
    """Write plots to `path/plots`. Members that failed are left out."""
    members = [one for one in ranking.members if not math.isnan(one.score)]
    if not members:
        return []
    folder = path / PLOTS
    folder.mkdir(exist_ok=True)
    axes = [_axis(name, members) for name in plan.names]
    made = [_marginal(folder / f"marginal_{axis.name}.png", axis, members) for axis in axes]
    made += [
        _pair(folder / f"pair_{x.name}_{y.name}.png", x, y, members)
        for x, y in itertools.combinations(axes, 2)
    ]
    made.append(_curves(folder / "curves.png", plan, ranking, path))
    return made


def _axis(name: str, members: Sequence[Scored]) -> Axis:
    found = {one.member.settings[name] for one in members}
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
    """Sort tuples of widths by value and everything else by name."""
    return (0, value) if isinstance(value, tuple) else (1, str(value))


def _furthest(members: Sequence[Scored]) -> list[Scored]:
    """Without the members that halving stopped: their returns come from less training."""
    progress = max(one.progress for one in members)
    return [one for one in members if one.progress == progress]


def _middle(members: Sequence[Scored]) -> float:
    return float(iqm(np.array([one.score for one in members])))


def _marginal(path: Path, axis: Axis, members: Sequence[Scored]) -> Path:
    """The score against one option: a point per member, and a line of interquartile means."""
    figure, axes = new_figure()
    last = _furthest(members)
    early = [one for one in members if one.progress < last[0].progress]

    def points(members: Sequence[Scored], **looks: Any) -> None:
        x = [axis.at(one.member.settings[axis.name]) for one in members]
        axes.scatter(x, [one.score for one in members], s=26, linewidths=1, **looks)

    if early:
        points(early, facecolors="none", edgecolors="#bbbbbb", label="stopped early")
    points(last, color=POINT, alpha=0.7, label="member")
    x, y = _line(axis, last)
    style = "-" if all(_number(value) for value in axis.values) else ""
    axes.plot(x, y, color=LINE, linestyle=style, marker="_", markersize=14, label="IQM")
    axis.apply(axes, "x")
    axes.set_ylabel(SCORE)
    axes.grid(axis="y", alpha=0.3)
    axes.margins(x=0.08)
    if axis.kind == "category":
        axes.set_xlim(-0.5, len(axis.values) - 0.5)
    figure.legend(loc="outside upper right", ncols=3, frameon=False)
    return save(figure, path)


def _line(axis: Axis, members: Sequence[Scored]) -> tuple[list[float], list[float]]:
    """The IQM at each value; with many values, in bins of equally many members."""
    ordered = sorted(members, key=lambda one: axis.at(one.member.settings[axis.name]))
    at = [axis.at(one.member.settings[axis.name]) for one in ordered]
    if len(set(at)) > CELLS:
        bins = [list(group) for group in np.array_split(np.arange(len(at)), BINS)]
    else:
        bins = [list(group) for _, group in itertools.groupby(range(len(at)), key=at.__getitem__)]
    x = [float(np.median([at[i] for i in group])) for group in bins]
    return x, [_middle([ordered[i] for i in group]) for group in bins]


def _pair(path: Path, x: Axis, y: Axis, members: Sequence[Scored]) -> Path:
    """Two options: a heat map if most pairs of values were tried, otherwise a point per setting."""
    last = _furthest(members)
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
    axes.set_facecolor("#dddddd")  # pairs that were not tried
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
    order = sorted(middles, key=middles.__getitem__)  # draws the best on top
    points = axes.scatter(
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
    figure.colorbar(points, ax=axes, label=f"IQM of {SCORE}")
    return save(figure, path)


def _curves(path: Path, plan: Plan, ranking: Ranking, sweep: Path) -> Path:
    """Greedy returns of the best settings during training: mean and range over the seeds with the
    most steps. Reads the evaluations of these settings only."""
    count = len(ranking.members)
    best = [one for one in ranking.settings if not math.isnan(one.iqm)][:CURVES]
    height = 4.2 + 0.25 * len(best)
    figure, axes = new_figure(7.2, height)
    for one, colour in zip(best, COLOURS, strict=False):
        seeds = [
            read_greedy_evaluations(sweep / member_name(seed.member.index, count))
            for seed in ranking.members
            if seed.member.setting == one.setting and seed.steps == one.steps and not seed.failed
        ]
        steps, mean, low, high = _over_seeds(seeds)
        axes.plot(steps, mean, color=colour, label=_label(one, plan.names))
        axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("environment steps")
    axes.set_ylabel(SCORE)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    title = "mean and range over seeds, best first"
    figure.legend(loc="outside lower center", ncols=1, frameon=False, title=title, fontsize=9)
    return save(figure, path)


def _over_seeds(seeds: Sequence[list[dict[str, Any]]]) -> tuple[list[int], Any, Any, Any]:
    """Mean, minimum and maximum at each number of steps, over the seeds that reached it."""
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
