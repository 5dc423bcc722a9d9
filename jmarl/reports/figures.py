"""A report's curves as pictures, one file a figure. Imported only when asked for: matplotlib."""

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from jmarl.presentation.figures import COLOURS, new_figure, save
from jmarl.reports.curves import PARTS, Curve, Metric, curve, metrics_of
from jmarl.reports.groups import World

Format = Literal["png", "svg"]
Against = Literal["steps", "time"]
POINTS = 2000  # of a curve
FEW = 12  # that are marked one by one
AXES = {"steps": "steps of single worlds", "time": "minutes of training"}
SAME: Any = {"svg.hashsalt": "jmarl"}  # the same names in the file again


def write_figures(
    folder: Path,
    kind: Format,
    worlds: Sequence[World],
    against: Against,
    tell: Callable[[str], None],
) -> list[Path]:
    """The best settings of every world; `eval_return_mean.png`, and so on. `tell` hears what is
    going on."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for world in worlds:
        runs = [run for setting in world.settings for run in setting.runs]
        for metric in metrics_of(runs):
            path = folder / f"{figure_name(metric, world, len(worlds) > 1)}.{kind}"
            tell(f"{path.name} …")
            if (figure := drawn(world, metric, against)) is not None:
                with warnings.catch_warnings(), matplotlib.rc_context(SAME):
                    warnings.filterwarnings("ignore", "Glyph")  # a name may be in any script
                    made.append(save(figure, path))
    return made


def figure_name(metric: Metric, world: World, several: bool) -> str:
    """The key with `_` for `/`; where there are several worlds, after the world's name."""
    name = f"{world.name}.{metric.key}" if several else metric.key
    return re.sub(r"[^\w.=-]+", "_", name)


def drawn(world: World, metric: Metric, against: Against) -> Figure | None:
    curves = []
    for setting in world.settings:
        found = curve(setting.runs, metric, POINTS)
        if found is not None:
            curves.append((setting, found))
        if len(curves) == len(COLOURS):
            break
    if not curves:
        return None
    figure, axes = new_figure(7.2, 4.2 + 0.25 * len(curves))
    lines = [
        _line(axes, found, against, colour)
        for (_, found), colour in zip(curves, COLOURS, strict=False)
    ]
    axes.set_xlabel(AXES[against])
    axes.set_ylabel(_label(metric), parse_math=False)
    if against == "steps":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    several = any((found.seeds > 1).any() for _, found in curves)
    order = "" if world.opponents or len(world.settings) < 2 else ", the best first"
    over = "IQM over seeds and its 95% interval" if several else "one seed each"
    legend = figure.legend(
        lines,
        [str(i) for i in range(len(lines))],
        loc="outside lower center",
        ncols=1,
        frameon=False,
        title=over + order,
        fontsize=9,
    )
    # set afterwards: names are no formulas, and those with a leading underscore would be left out
    for text, (setting, _) in zip(legend.get_texts(), curves, strict=True):
        text.set_parse_math(False)
        text.set_text(setting.label)
    return figure


def _label(metric: Metric) -> str:
    if metric.section == PARTS:
        return f"greedy return of {metric.title}"
    return f"{metric.title.lower()}, {metric.about}" if metric.about else metric.title.lower()


def _line(axes: Axes, found: Curve, against: Against, colour: str) -> Line2D:
    x = found.steps if against == "steps" else found.seconds / 60
    marker = "o" if len(x) <= FEW else ""
    (line,) = axes.plot(x, found.middle, color=colour, marker=marker, markersize=4)
    axes.fill_between(
        x, found.low, found.high, where=np.isfinite(found.low), color=colour, alpha=0.15, lw=0
    )
    return line
